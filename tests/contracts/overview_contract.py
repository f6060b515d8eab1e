"""What a store must answer to people who look at it; part of `AnalyticsContract`."""

import math

from riglm.domain.exposure import CONTEXT_SURFACE, SEARCH_SURFACE
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ErrorKind
from riglm.domain.session import Session, uuid7
from riglm.ports.analytics import AnalyticsPort, Record
from riglm.ports.dashboard import SessionKey, UsageCounts
from tests.records import a_session, an_exposure, an_invocation


def key_of(session: Session) -> SessionKey:
    """The place of a session."""
    return SessionKey(session.started_at, session.id)


class OverviewContract:
    """Expects the fixture `analytics` of `AnalyticsContract`."""

    def refresh(self, analytics: AnalyticsPort) -> None:
        """Have the store count what is used together."""
        analytics.refresh_cooccurrences(1.0)

    def test_a_store_without_records_has_nothing_to_show(self, analytics: AnalyticsPort) -> None:
        """No question needs records, and there are as many spans as were asked for."""
        assert list(analytics.list_sessions(10)) == []
        assert analytics.session_of(uuid7()) is None
        assert analytics.count_sessions() == (0, 0)
        assert analytics.earliest_call() == math.inf
        assert list(analytics.list_invocations(uuid7(), 10)) == []
        assert list(analytics.latest_exposures(uuid7(), 10)) == []
        assert list(analytics.tools_known()) == []
        assert analytics.tool_totals("read") is None
        assert list(analytics.usage(0.0, 100.0, 3)) == [UsageCounts()] * 3
        assert list(analytics.top_cooccurrences(10)) == []

    def test_sessions_are_given_part_by_part_and_new_ones_shift_nothing(self, analytics: AnalyticsPort) -> None:
        """Newest first, by id among those that started at the same time; each exactly once."""
        sessions = [a_session(started_at=1000.0 + number // 3) for number in range(8)]
        analytics.record_many(list(sessions))
        expected = [each.id for each in sorted(sessions, key=key_of, reverse=True)]
        seen = []
        key = None
        while found := analytics.list_sessions(3, before=key):
            seen += [each.session.id for each in found]
            key = key_of(found[-1].session)
            analytics.record_many([a_session(started_at=3000.0)])
        assert seen == expected

    def test_of_sessions_only_those_without_an_end_are_given_on_request(self, analytics: AnalyticsPort) -> None:
        """And they are counted; of all those count that started since a time."""
        ended, old, young = (a_session(started_at=at) for at in (1000.0, 1001.0, 1002.0))
        ended.ended_at = 1010.0
        analytics.record_many([ended, old, young, an_invocation(young, "read"), an_invocation(old, "read")])
        assert [each.session.id for each in analytics.list_sessions(10, active_only=True)] == [young.id, old.id]
        assert analytics.count_sessions() == (2, 3)
        assert analytics.count_sessions(1001.0) == (2, 2)
        assert analytics.earliest_call() == 1002.0

    def test_one_session_is_found_by_its_id_with_what_happened_in_it(self, analytics: AnalyticsPort) -> None:
        """Lists are counted apart from answers."""
        session = a_session()
        shown = [
            an_exposure(session, "a", timestamp=1001.0),
            an_exposure(session, "b", timestamp=1002.0),
            an_exposure(session, "c", timestamp=1003.0, surface=SEARCH_SURFACE),
            an_exposure(session, "c", timestamp=1004.0, surface=CONTEXT_SURFACE),
        ]
        calls = [an_invocation(session, "a"), an_invocation(session, "a", success=False)]
        analytics.record_many([session, a_session(), *shown, *calls])
        found = analytics.session_of(session.id)
        assert found is not None
        assert (found.session.id, found.session.sequence, found.invocations, found.failures) == (session.id, 2, 2, 1)
        assert (found.exposures, found.lists, found.list_changes, found.searches) == (4, 2, 1, 1)

    def test_the_latest_records_of_a_session_come_in_their_order(self, analytics: AnalyticsPort) -> None:
        """And no others."""
        session, other = a_session(), a_session()
        calls = [an_invocation(session, f"tool_{number}") for number in range(5)]
        shown = [an_exposure(session, f"tool_{number}", timestamp=1000.0 + number) for number in range(5)]
        analytics.record_many([session, *calls, *shown, an_invocation(other, "x"), an_exposure(other, "x")])
        assert list(analytics.list_invocations(session.id, 2)) == calls[3:]
        assert list(analytics.list_invocations(session.id, 9)) == calls
        assert list(analytics.latest_exposures(session.id, 2)) == shown[3:]

    def test_tools_are_known_that_were_used_shown_or_hidden(self, analytics: AnalyticsPort) -> None:
        """Since a time; what only an answer to a search showed is no list."""
        session = a_session()
        records: list[Record] = [
            an_exposure(session, "shown", "used", hidden=("hidden",), timestamp=10.0),
            an_exposure(session, "found", timestamp=11.0, surface=SEARCH_SURFACE),
            an_exposure(session, "old", timestamp=5.0),
            an_invocation(session, "used", timestamp=10.0, duration_ms=7.0),
        ]
        analytics.record_many(records)
        found = [(each.tool, each.upstream, each.invocations, each.median_ms) for each in analytics.tools_known(10.0)]
        assert found == [("used", "github", 1, 7.0), ("hidden", "", 0, 0.0), ("shown", "", 0, 0.0)]
        assert len(analytics.tools_known()) == 4

    def test_a_tool_is_told_from_a_name_that_was_only_called(self, analytics: AnalyticsPort) -> None:
        """By the lists that had it, in that time."""
        session = a_session()
        calls = [an_invocation(session, tool, success=False, error_kind=ErrorKind.PROTOCOL) for tool in ("a", "b", "c")]
        lists = [an_exposure(session, "a", hidden=("b",), timestamp=10.0), an_exposure(session, "c", timestamp=5.0)]
        analytics.record_many([*calls, *lists])
        assert {each.tool: each.in_lists for each in analytics.tools_known(10.0)} == {"a": True, "b": True, "c": False}

    def test_a_tool_is_summed_up_over_its_upstreams(self, analytics: AnalyticsPort) -> None:
        """Under the one that ran it most; percentiles are of all its calls together."""
        session = a_session()
        calls = [an_invocation(session, "read", upstream="big", duration_ms=float(each)) for each in range(19)]
        calls += [an_invocation(session, "read", upstream="small", duration_ms=99.0), an_invocation(session, "x")]
        analytics.record_many(list(calls))
        found = analytics.tool_totals("read")
        assert found is not None
        assert (found.tool, found.upstream, found.invocations, found.sessions) == ("read", "big", 20, 1)
        assert (found.median_ms, found.p95_ms, found.last_used) == (9.0, 18.0, calls[19].timestamp)
        late = analytics.tool_totals("read", calls[19].timestamp)
        assert late is not None
        assert (late.upstream, late.invocations, late.median_ms) == ("small", 1, 99.0)
        assert analytics.tool_totals("read", 9e9) is None

    def test_use_is_counted_in_spans_of_time(self, analytics: AnalyticsPort) -> None:
        """The beginning of a span belongs to it and the end does not; what is outside of all does not count."""
        session = a_session()
        times = [99.9, 100.0, 109.9, 110.0, 129.9, 130.0]
        analytics.record_many([an_invocation(session, "read", timestamp=at) for at in times])
        assert [each.calls for each in analytics.usage(100.0, 130.0, 3)] == [2, 1, 1]
        assert [each.calls for each in analytics.usage(100.0, 130.0)] == [4]
        assert [each.calls for each in analytics.usage(0.0, 130.0)] == [5]
        assert [each.calls for each in analytics.usage(0.0, math.inf)] == [6]

    def test_how_tools_were_found_is_counted_of_uses_alone(self, analytics: AnalyticsPort) -> None:
        """A call in which no tool surely ran is counted as a call; riglm's own tools are left out of all."""
        session = a_session()
        listed = an_invocation(session, "read", found=DiscoveryMethod.LISTED)
        searched = an_invocation(
            session, "write", found=DiscoveryMethod.SEARCHED, success=False, error_kind=ErrorKind.TOOL
        )
        lost = an_invocation(
            session, "nothing", found=DiscoveryMethod.NAMED, success=False, error_kind=ErrorKind.PROTOCOL
        )
        own = an_invocation(session, "call_tool", upstream=OWN_UPSTREAM, found=DiscoveryMethod.LISTED)
        analytics.record_many([listed, searched, lost, own])
        assert list(analytics.usage(0.0, 9e9)) == [UsageCounts(calls=3, failures=2, listed=1, searched=1)]
        assert list(analytics.usage(0.0, 9e9, tool="write")) == [UsageCounts(calls=1, failures=1, searched=1)]

    def test_lists_count_with_what_the_client_saw(self, analytics: AnalyticsPort) -> None:
        """In the mode `shadow` that is everything; answers to a search are no lists."""
        session = a_session()
        records: list[Record] = [
            an_exposure(session, "a", hidden=("b", "c"), timestamp=10.0, mode="enforce"),
            an_exposure(session, "a", hidden=("b", "c"), timestamp=11.0, mode="enforce"),
            an_exposure(session, "a", hidden=("b", "c"), timestamp=12.0, mode="shadow"),
            an_exposure(session, "a", timestamp=13.0, surface=SEARCH_SURFACE),
            an_exposure(session, timestamp=25.0),
        ]
        analytics.record_many(records)
        first, second = analytics.usage(10.0, 30.0, 2)
        assert (first.lists, first.tools_shown, first.tools_available) == (3, 5, 9)
        assert (second.lists, second.tools_shown, second.tools_available) == (1, 0, 0)

    def test_the_map_of_co_occurrence_has_the_tools_that_are_used_together_most(self, analytics: AnalyticsPort) -> None:
        """With all pairs among them."""
        for tools in (("a", "b"), ("a", "b"), ("a", "b"), ("b", "c"), ("b", "c"), ("a", "c"), ("x", "y")):
            session = a_session()
            analytics.record_many([session, *(an_invocation(session, tool) for tool in tools)])
        self.refresh(analytics)
        found = [(each.tool_a, each.tool_b, each.count) for each in analytics.top_cooccurrences(3)]
        assert found == [("a", "b", 3), ("b", "c", 2), ("a", "c", 1)]
        assert [(each.tool_a, each.tool_b) for each in analytics.top_cooccurrences(2)] == [("a", "b")]
