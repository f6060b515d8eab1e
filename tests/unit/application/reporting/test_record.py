"""What recorded lists and calls come to."""

import pytest

from riglm.adapters.analytics.memory import InMemoryAnalytics
from riglm.application.reporting.record import read_record
from riglm.domain.exposure import NOTHING_HIDDEN
from riglm.domain.invocation import Found
from riglm.testing.records import a_session, an_exposure, an_invocation
from tests.unit.application.reporting.shadowed import worked

OWN = 700


def read(*records, mode="shadow"):
    with InMemoryAnalytics() as store:
        store.record_many(records)
        return read_record(store.recent_calls(), store.list_exposures, OWN).of(mode)


def a_list(session, *shown, hidden=(), at, **known):
    known = {"mode": "shadow", "surface": "dynamic", **known}
    tokens = {"tokens_shown": 100 * len(shown), "tokens_hidden": 100 * len(hidden)}
    return an_exposure(session, *shown, hidden=hidden, timestamp=at, **tokens, **known)


def called(session, tool, at, found=Found.LISTED):
    return an_invocation(session, tool, timestamp=at, found=found)


def test_a_call_goes_with_the_last_list_before_it():
    session = a_session(started_at=10.0)
    found = read(
        session,
        a_list(session, "a", "b", "c", at=10.0),
        called(session, "b", 11.0),
        a_list(session, "a", hidden=("b", "c"), at=12.0),
        called(session, "b", 13.0),
        called(session, "a", 14.0),
    )
    assert [(use.tool, use.in_list, use.fresh, use.shown, use.available) for use in found.uses] == [
        ("b", True, True, 3, 3),
        ("b", False, False, 1, 3),
        ("a", True, True, 1, 3),
    ]


def test_calls_before_any_list_and_of_tools_that_no_list_had_are_left_out():
    session = a_session(started_at=10.0)
    found = read(session, called(session, "a", 11.0), a_list(session, "a", at=12.0), called(session, "made_up", 13.0))
    assert found.uses == ()
    assert len(found.lists) == 1


def test_a_shadow_is_charged_with_the_tools_that_riglm_would_have_offered():
    session = a_session(started_at=10.0)
    whole, short = found = read(
        session,
        a_list(session, "a", "b", "c", at=10.0),
        a_list(session, "a", hidden=("b", "c"), at=12.0),
        called(session, "a", 13.0),
    ).lists
    assert [each.tokens_own for each in found] == [OWN, OWN]
    assert (whole.tokens_resent, short.tokens_resent) == (0, 100 + OWN)
    assert (whole.tokens_net, short.tokens_net) == (-OWN, 200 - OWN - 100 - OWN)


@pytest.mark.parametrize("known", [{"surface": "hints"}, {"surface": "full"}, {"reason": NOTHING_HIDDEN}])
def test_where_riglm_offers_no_tools_of_its_own_they_cost_nothing(known):
    session = a_session(started_at=10.0)
    [one] = read(session, a_list(session, "a", at=10.0, **known), called(session, "a", 11.0)).lists
    assert one.tokens_own == one.tokens_net == 0


def test_the_answer_to_a_search_is_no_list():
    session = a_session(started_at=10.0)
    found = read(
        session,
        a_list(session, "a", hidden=("b",), at=10.0, mode="enforce"),
        a_list(session, "b", at=11.0, mode="enforce", surface="search"),
        called(session, "b", 12.0, Found.SEARCHED),
        mode="enforce",
    )
    assert [(use.in_list, use.found) for use in found.uses] == [(False, Found.SEARCHED)]
    assert len(found.lists) == 1


def test_what_riglm_s_own_tools_answered_counts_as_a_cost_from_then_on():
    session = a_session(started_at=10.0)
    enforced = {"mode": "enforce"}
    found = read(
        session,
        a_list(session, "b", at=9.0, surface="search", **enforced),
        a_list(session, "a", hidden=("b", "c", "d", "e"), at=10.0, **enforced),
        called(session, "a", 11.0),
        a_list(session, "b", at=12.0, surface="search", **enforced),
        a_list(session, "c", at=12.0, surface="context", **enforced),
        called(session, "b", 13.0, Found.SEARCHED),
        mode="enforce",
    )
    assert [(each.tokens_answered, each.tokens_net) for each in found.lists] == [(200, 200)]
    assert [use.saved for use in found.uses] == [400, 200]


def test_lists_come_to_what_riglm_stats_counts():
    with InMemoryAnalytics() as store:
        store.record_many(worked(20))
        found = read_record(store.recent_calls(), store.list_exposures, OWN).of("shadow")
        [counted] = [each.charged(OWN) for each in store.exposure_totals()]
    assert len(found.lists) == counted.lists
    assert sum(each.changed for each in found.lists) == counted.changes
    assert sum(each.tokens_hidden for each in found.lists) == counted.tokens_hidden
    assert sum(each.tokens_net for each in found.lists) == counted.tokens_net
