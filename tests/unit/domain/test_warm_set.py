import pytest

from riglm.domain.usage import Usage, WarmSet, WarmSetKey

PERIOD = 100.0


def make_warm_set(evidence):
    usage = Usage(evidence=evidence, probabilities={}, requests=1.0, distinct_tools=0.0)
    key = WarmSetKey(principal="p", client="cursor", profile="default", project="q")
    return WarmSet(key=key, strategy="s", predictor="hybrid", usage=usage, created_at=1000.0)


@pytest.mark.parametrize(
    ("evidence", "sessions", "is_due"),
    [(3, 2, True), (3, 3, False), (3, 4, True), (10, 9, True), (10, 12, False), (10, 13, True), (100, 129, False)],
)
def test_a_warm_set_is_due_when_its_evidence_has_grown_by_30_percent_or_shrunk(evidence, sessions, is_due):
    assert make_warm_set(evidence).is_due(sessions, (), 1000.0, PERIOD) is is_due


@pytest.mark.parametrize(("now", "is_due"), [(900.0, True), (901.0, False), (1099.0, False), (1100.0, True)])
def test_a_warm_set_is_due_a_period_after_or_before_its_creation(now, is_due):
    assert make_warm_set(3).is_due(3, (), now, PERIOD) is is_due


def test_a_warm_set_without_evidence_is_always_due():
    assert make_warm_set(0).is_due(0, (), 1000.0, PERIOD)
