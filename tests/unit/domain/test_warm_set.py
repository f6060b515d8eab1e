import pytest

from riglm.domain.usage import Usage, WarmSet

PERIOD = 100.0


def make_warm_set(evidence):
    usage = Usage(evidence=evidence, probabilities={}, requests=1.0, distinct_tools=0.0)
    return WarmSet(principal="p", client="cursor", profile="default", usage=usage, created_at=1000.0)


@pytest.mark.parametrize(("sessions", "is_due"), [(2, True), (3, False), (5, False), (6, True)])
def test_a_warm_set_is_due_when_its_evidence_has_doubled_or_shrunk(sessions, is_due):
    assert make_warm_set(3).is_due(sessions, 1000.0, PERIOD) is is_due


@pytest.mark.parametrize(("now", "is_due"), [(900.0, True), (901.0, False), (1099.0, False), (1100.0, True)])
def test_a_warm_set_is_due_a_period_after_or_before_its_creation(now, is_due):
    assert make_warm_set(3).is_due(3, now, PERIOD) is is_due


def test_a_warm_set_without_evidence_is_always_due():
    assert make_warm_set(0).is_due(0, 1000.0, PERIOD)
