"""What a store must answer to people who look at it; part of `AnalyticsContract`."""

from riglm.domain.exposure import CONTEXT_SURFACE, SEARCH_SURFACE
from riglm.domain.session import Session, uuid7
from riglm.ports.analytics import AnalyticsPort, SessionKey
from tests.records import a_session, an_exposure, an_invocation


def key_of(session: Session) -> SessionKey:
    """The place of a session."""
    return SessionKey(session.started_at, session.id)


class OverviewContract:
    """Expects the fixture `analytics` of `AnalyticsContract`."""

    def test_a_store_without_records_has_nothing_to_show(self, analytics: AnalyticsPort) -> None:
        """No question needs records."""
        assert list(analytics.list_sessions(10)) == []
        assert analytics.find_session(uuid7()) is None
        assert list(analytics.list_invocations(uuid7(), 10)) == []
        assert list(analytics.latest_exposures(uuid7(), 10)) == []
        assert list(analytics.list_top_cooccurrences(10)) == []

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
        """Newest first."""
        ended, old, young = (a_session(started_at=at) for at in (1000.0, 1001.0, 1002.0))
        ended.ended_at = 1010.0
        analytics.record_many([ended, old, young])
        assert [each.session.id for each in analytics.list_sessions(10, active_only=True)] == [young.id, old.id]

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
        found = analytics.find_session(session.id)
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

    def test_the_map_of_co_occurrence_has_the_tools_that_are_used_together_most(self, analytics: AnalyticsPort) -> None:
        """With all pairs among them."""
        for tools in (("a", "b"), ("a", "b"), ("a", "b"), ("b", "c"), ("b", "c"), ("a", "c"), ("x", "y")):
            session = a_session()
            analytics.record_many([session, *(an_invocation(session, tool) for tool in tools)])
        analytics.refresh_cooccurrences(1.0)
        found = [(each.tool_a, each.tool_b, each.count) for each in analytics.list_top_cooccurrences(3)]
        assert found == [("a", "b", 3), ("b", "c", 2), ("a", "c", 1)]
        assert [(each.tool_a, each.tool_b) for each in analytics.list_top_cooccurrences(2)] == [("a", "b")]
