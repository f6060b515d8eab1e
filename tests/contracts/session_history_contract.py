"""What gives recorded sessions as wholes must do; part of `AnalyticsContract`."""

import math
from typing import Any

import pytest

from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ErrorKind
from riglm.domain.session import PROFILE, ClientInfo
from riglm.ports.analytics import TrainingCall, TrainingSession
from tests.records import a_session, an_exposure, an_invocation


class SessionHistoryContract:
    """Expects the fixture `analytics`: a store of records with a `SessionHistoryPort`."""

    def test_recent_sessions_come_oldest_first_with_their_calls_in_order(self, analytics: Any) -> None:
        """All that prediction learns from."""
        late = a_session(started_at=20.0)
        early = a_session(
            started_at=10.0,
            client=ClientInfo(name="cursor", version="1"),
            client_id="c" * 32,
            principal="p" * 32,
            project="r" * 32,
            metadata={"profile": "work"},
            tools_available=("read", "write"),
        )
        first = an_invocation(early, "read", found=DiscoveryMethod.LISTED, timestamp=11.0)
        second = an_invocation(early, "write", upstream="files", success=False, timestamp=10.5)
        analytics.record_many([late, early, an_invocation(late, "read"), second, first])
        [earlier, later] = analytics.list_training_sessions()
        assert earlier == TrainingSession(
            id=early.id,
            started_at=10.0,
            client="cursor",
            client_id="c" * 32,
            principal="p" * 32,
            project="r" * 32,
            profile="work",
            tools_available=("read", "write"),
            calls=(
                TrainingCall("read", "github", DiscoveryMethod.LISTED, True, 11.0, duration_ms=1.5),
                TrainingCall("write", "files", DiscoveryMethod.NAMED, False, 10.5, duration_ms=1.5),
            ),
        )
        assert (later.id, later.profile, len(later.calls)) == (late.id, "default", 1)

    def test_calls_in_which_no_tool_surely_ran_are_not_learned_from_again(self, analytics: Any) -> None:
        """And a session of nothing else takes no place."""
        session, vain = a_session(started_at=1.0), a_session(started_at=2.0)
        analytics.record_many([session, vain, an_invocation(session, "read")])
        for each in (session, vain):
            analytics.record_many([an_invocation(each, "none", success=False, error_kind=ErrorKind.PROTOCOL)])
        [recent] = analytics.list_training_sessions(1)
        assert (recent.id, [call.tool for call in recent.calls]) == (session.id, ["read"])

    def test_calls_of_riglm_s_own_tools_are_not_learned_from_again(self, analytics: Any) -> None:
        """Nor does a session of nothing else take a place; a server's tool of such a name does."""
        session, own = a_session(started_at=1.0), a_session(started_at=2.0)
        for each in (session, own):
            analytics.record_many([each, an_invocation(each, "call_tool", upstream=OWN_UPSTREAM)])
        analytics.record_many([an_invocation(session, "call_tool"), an_invocation(session, "read")])
        [recent] = analytics.list_training_sessions(1)
        assert (recent.id, [call.upstream for call in recent.calls]) == (session.id, ["github", "github"])

    def test_the_latest_sessions_with_calls_are_the_recent_ones(self, analytics: Any) -> None:
        """The limit cuts off the oldest, `since` is included, and sessions without calls take no place."""
        sessions = [a_session(started_at=float(start)) for start in range(5)]
        analytics.record_many([*sessions, *(an_invocation(each, "read") for each in sessions[:4])])
        assert [each.started_at for each in analytics.list_training_sessions(2)] == [2.0, 3.0]
        assert [each.started_at for each in analytics.list_training_sessions(since=1.0)] == [1.0, 2.0, 3.0]
        assert list(analytics.list_training_sessions(0)) == []

    def test_recent_sessions_are_told_of_a_principal_or_of_all(self, analytics: Any) -> None:
        """The limit counts those of the principal alone, and nobody has a name as well."""
        mine, theirs = "m" * 32, ""
        sessions = [a_session(started_at=float(at), principal=who) for at, who in enumerate([mine, theirs] * 2)]
        analytics.record_many([*sessions, *(an_invocation(each, "read") for each in sessions)])
        assert [each.started_at for each in analytics.list_training_sessions(principal=mine)] == [0.0, 2.0]
        assert [each.started_at for each in analytics.list_training_sessions(1, principal=mine)] == [2.0]
        assert [each.started_at for each in analytics.list_training_sessions(principal=theirs)] == [1.0, 3.0]
        assert [each.started_at for each in analytics.list_training_sessions(since=2.0, principal=theirs)] == [3.0]
        assert list(analytics.list_training_sessions(principal="nobody")) == []

    def test_sessions_are_counted_by_their_start_and_the_earliest_call_is_known(self, analytics: Any) -> None:
        """Open sessions count apart; without records there are none, and no call."""
        assert (analytics.count_sessions(), analytics.get_earliest_call_time()) == ((0, 0), math.inf)
        ended, old, young = (a_session(started_at=at) for at in (1000.0, 1001.0, 1002.0))
        ended.ended_at = 1010.0
        analytics.record_many([ended, old, young, an_invocation(young, "read"), an_invocation(old, "read")])
        assert analytics.count_sessions() == (2, 3)
        assert analytics.count_sessions(1001.0) == (2, 2)
        assert analytics.get_earliest_call_time() == 1002.0

    def test_exposures_come_back_in_the_order_of_their_time(self, analytics: Any) -> None:
        """What was shown keeps its order, what was hidden is sorted."""
        session = a_session()
        late = an_exposure(session, "b", "a", timestamp=20.0, hidden=("z", "c"), predictor="hybrid", reason="learned")
        early = an_exposure(session, timestamp=10.0)
        analytics.record_many([late, early])
        [first, second] = analytics.list_exposures(session.id)
        assert first == early
        assert (second.shown, second.hidden) == (("b", "a"), ("c", "z"))
        assert (second.id, second.timestamp, second.predictor, second.reason) == (late.id, 20.0, "hybrid", "learned")

    def test_an_exposure_keeps_what_it_cost_and_how_it_was_made(self, analytics: Any) -> None:
        """Estimates of tokens, mode and surface."""
        exposure = an_exposure(
            a_session(),
            "a",
            hidden=("b",),
            mode="shadow",
            surface="dynamic",
            tokens_shown=300,
            tokens_hidden=7000,
            tokens_own=120,
        )
        analytics.record_many([exposure])
        assert list(analytics.list_exposures(exposure.session_id)) == [exposure]

    @pytest.mark.parametrize("name", ["a_b", "a%", "!", 'a"b', "ä", "default", ""])
    def test_recent_sessions_of_a_profile_are_found_among_many_others(self, analytics: Any, name: str) -> None:
        """The limit counts those of the profile; sessions without a profile are in the default one."""
        others = [{PROFILE: "axb"}, {PROFILE: "a"}, {PROFILE: "x", "why": 'a "profile":"a_b"'}, {}]
        metadata = [{PROFILE: name}, {PROFILE: name, "why": "x"}, *others * 3]
        sessions = [a_session(started_at=float(at), metadata=each) for at, each in enumerate(metadata)]
        analytics.record_many([*sessions, *(an_invocation(each, "read") for each in sessions)])
        found = analytics.list_training_sessions(2, profile=name)
        assert [each.started_at for each in found] == ([9.0, 13.0] if name == "default" else [0.0, 1.0])
        assert {each.profile for each in found} == {name}
