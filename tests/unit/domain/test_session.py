"""Sessions and exposures: the little that they work out by themselves."""

import pytest

from riglm.domain.session import IdentificationConfidence, IdentificationMethod
from tests.contracts.analytics_contract import a_session
from tests.records import an_exposure


@pytest.mark.parametrize(
    ("method", "confidence"),
    [
        (IdentificationMethod.META_KEY, IdentificationConfidence.EXACT),
        (IdentificationMethod.ADDRESS, IdentificationConfidence.WEAK),
    ],
)
def test_the_confidence_follows_from_the_method(method, confidence):
    assert a_session(method=method).confidence is confidence


def test_the_same_tools_make_the_same_list_however_they_are_divided():
    session = a_session()
    exposures = [an_exposure(session, "c", "a", hidden=("b",)), an_exposure(session, "b", hidden=("a", "c"))]
    assert [each.available for each in exposures] == [("a", "b", "c")] * 2
