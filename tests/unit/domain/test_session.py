"""Sessions and exposures: the little that they work out by themselves."""

import pytest

from riglm.domain.exposure import available_tools
from riglm.domain.session import CONFIDENCE, IdentificationConfidence, IdentificationMethod
from tests.contracts.analytics_contract import a_session


def test_sequence_numbers_count_from_one():
    session = a_session()
    assert [session.next_sequence_number() for _ in range(3)] == [1, 2, 3]
    assert session.sequence == 3


@pytest.mark.parametrize(
    ("method", "confidence"),
    [
        (IdentificationMethod.META_KEY, IdentificationConfidence.EXACT),
        (IdentificationMethod.ADDRESS, IdentificationConfidence.WEAK),
    ],
)
def test_the_confidence_follows_from_the_method(method, confidence):
    assert a_session(method=method).confidence is confidence


def test_every_method_has_a_confidence():
    assert set(CONFIDENCE) == set(IdentificationMethod)


def test_the_same_tools_make_the_same_list_however_they_are_divided():
    assert available_tools(("c", "a"), ("b",)) == available_tools(("b",), ("a", "c")) == ("a", "b", "c")


def test_a_list_that_hides_nothing_keeps_its_order():
    assert available_tools(("c", "a"), ()) == ("c", "a")
