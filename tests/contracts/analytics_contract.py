"""What every analytics store must do: subclass `AnalyticsContract` and give it an open store."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any, cast
from uuid import UUID

import numpy as np
import pytest

from riglm.domain.cooccurrence import MAX_TOOL_LENGTH, MAX_TOOLS_PER_SESSION
from riglm.domain.exposure import CONTEXT_SURFACE, SEARCH_SURFACE
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ErrorKind, ToolInvocation
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport, uuid7
from riglm.ports.analytics import AnalyticsPort, Record, RecordRejectedError, SessionClosed, SessionSummary
from tests.contracts.maintenance_contract import MaintenanceContract
from tests.contracts.overview_contract import OverviewContract
from tests.contracts.prediction_store_contract import PredictionStoreContract
from tests.contracts.session_history_contract import SessionHistoryContract
from tests.records import a_learned_pair, a_session, an_exposure, an_invocation

__all__ = ["AnalyticsContract", "a_session", "an_exposure", "an_invocation"]


def the_only(summaries: object) -> SessionSummary:
    """The single one of a list of sessions."""
    [summary] = cast("list[SessionSummary]", summaries)
    return summary


def values(session: Session) -> dict[str, object]:
    """Everything that is known of a session."""
    return {field.name: getattr(session, field.name) for field in fields(session)}


class AnalyticsContract(MaintenanceContract, OverviewContract, PredictionStoreContract, SessionHistoryContract):
    """Override the fixture `analytics` with a store that is open and empty."""

    @pytest.fixture
    def analytics(self) -> AnalyticsPort:
        """The store under test, open and empty."""
        raise NotImplementedError

    def test_a_new_store_answers_every_question_with_nothing(self, analytics: AnalyticsPort) -> None:
        """No question needs records."""
        assert list(analytics.list_sessions()) == []
        assert list(analytics.list_invocations(uuid7())) == []
        assert list(analytics.list_exposures(uuid7())) == []
        assert analytics.list_known_tools() == frozenset()
        assert analytics.refresh_cooccurrences(1.0) == 0
        assert list(analytics.get_cooccurrences(["read"])) == []
        assert analytics.get_tool_frequencies() == {}

    def test_records_can_be_stored_one_at_a_time(self, analytics: AnalyticsPort) -> None:
        """As the batch operation stores them."""
        session = a_session()
        call = an_invocation(session, "read")
        analytics.create_session(session)
        analytics.log_invocation(call)
        analytics.close_session(session.id, 2000.0)
        assert the_only(analytics.list_sessions()).session.ended_at == 2000.0
        assert list(analytics.list_invocations(session.id)) == [call]

    def test_tool_frequencies_count_uses_of_upstream_tools_since_a_time(self, analytics: AnalyticsPort) -> None:
        """A call that may not have reached a tool, and a call of a meta-tool, are no uses."""
        session = a_session()
        calls = [an_invocation(session, tool, timestamp=at) for at, tool in enumerate(("a", "b", "a", "a"))]
        failed = an_invocation(session, "b", success=False, error_kind=ErrorKind.TOOL, timestamp=4.0)
        not_run = an_invocation(session, "c", success=False, error_kind=ErrorKind.TIMEOUT, timestamp=4.0)
        own = an_invocation(session, "search_tools", upstream=OWN_UPSTREAM, timestamp=4.0)
        analytics.record_many([session, *calls, failed, not_run, own])
        assert analytics.get_tool_frequencies() == {"a": 3, "b": 2}
        assert analytics.get_tool_frequencies(2.0) == {"a": 2, "b": 1}

    def test_storing_nothing_is_allowed(self, analytics: AnalyticsPort) -> None:
        """An empty batch changes nothing."""
        analytics.record_many([])
        assert list(analytics.list_sessions()) == []

    def test_a_session_comes_back_as_it_was_stored(self, analytics: AnalyticsPort) -> None:
        """Every field is kept."""
        session = a_session(
            era=ProtocolEra.MODERN,
            transport=Transport.HTTP,
            method=IdentificationMethod.META_KEY,
            client=ClientInfo(name="Käse \U0001f9c0", version="1.2"),
            client_id="c" * 32,
            principal="p" * 32,
            project="r" * 32,
            protocol_version="2026-07-28",
            keys={"threadId": "a" * 32},
            metadata={"cwd": "ö"},
            tools_available=("b", "a"),
            ended_at=1005.5,
        )
        analytics.record_many([session])
        assert values(the_only(analytics.list_sessions()).session) == values(session)

    def test_a_session_of_which_nothing_is_heard_ends_with_its_last_record(self, analytics: AnalyticsPort) -> None:
        """Its process was killed; what still goes on, and what ended, is left alone."""
        killed, silent, alive, ended = (a_session(started_at=1000.0) for _ in range(4))
        ended.ended_at = 1001.0
        last_call = an_invocation(killed, "read", timestamp=1050.0)
        shown = an_exposure(killed, "read", timestamp=1060.0)
        analytics.record_many([killed, silent, alive, ended, last_call, shown])
        analytics.record_many([an_invocation(alive, "read", timestamp=2000.0)])
        assert analytics.end_idle_sessions(1500.0) == 2
        ends = {summary.session.id: summary.session.ended_at for summary in analytics.list_sessions()}
        assert ends == {killed.id: 1060.0, silent.id: 1000.0, alive.id: None, ended.id: 1001.0}
        assert analytics.end_idle_sessions(1500.0) == 0
        analytics.record_many([SessionClosed(session_id=killed.id, ended_at=3000.0)])
        assert killed.id in {each.session.id for each in analytics.list_sessions() if each.session.ended_at == 3000.0}

    def test_a_session_stored_again_takes_what_became_known(self, analytics: AnalyticsPort) -> None:
        """The start is kept, all else is the newer."""
        session = a_session(tools_available=("a",))
        analytics.record_many([session])
        session.started_at = 2000.0
        session.client = ClientInfo(name="cursor", version="2")
        session.method = IdentificationMethod.META_KEY
        session.keys["threadId"] = "hash"
        session.metadata["title"] = "x"
        session.tools_available = ("a", "b")
        session.protocol_version = "2025-11-25"
        session.project = "r" * 32
        analytics.record_many([session])
        session.started_at = 1000.0
        assert values(the_only(analytics.list_sessions()).session) == values(session)

    def test_a_project_once_known_stays_with_its_session(self, analytics: AnalyticsPort) -> None:
        """A process that does not know it may store the session last."""
        session = a_session(project="r" * 32)
        analytics.record_many([session])
        session.project = ""
        analytics.record_many([session])
        assert the_only(analytics.list_sessions()).session.project == "r" * 32

    def test_what_is_stored_does_not_change_with_what_was_given(self, analytics: AnalyticsPort) -> None:
        """Stored and returned sessions are copies."""
        session = a_session(keys={"threadId": "hash"})
        analytics.record_many([session])
        session.keys["more"] = "x"
        the_only(analytics.list_sessions()).session.metadata["more"] = "x"
        stored = the_only(analytics.list_sessions()).session
        assert stored.keys == {"threadId": "hash"}
        assert stored.metadata == {}

    @pytest.mark.parametrize("bad", [{"duration_ms": math.nan}, {"error_code": "x"}, {"sequence_number": 2**70}])
    def test_calls_alone_are_stored_together_or_refused_together(
        self, analytics: AnalyticsPort, bad: dict[str, Any]
    ) -> None:
        """A second delivery changes nothing."""
        session = a_session()
        calls = [an_invocation(session, "read", sequence_number=number) for number in (1, 2)]
        with pytest.raises(RecordRejectedError):
            analytics.record_many([*calls, an_invocation(session, "read", **bad)])
        assert list(analytics.list_invocations(session.id)) == []
        analytics.record_many(calls)
        analytics.record_many(calls)
        assert list(analytics.list_invocations(session.id)) == calls

    def test_a_closed_session_has_an_end_and_is_not_active(self, analytics: AnalyticsPort) -> None:
        """Closing is seen in both lists."""
        open_one, closed_one = a_session(started_at=1.0), a_session(started_at=2.0)
        analytics.record_many([open_one, closed_one])
        analytics.record_many([SessionClosed(session_id=closed_one.id, ended_at=1010.0)])
        assert [each.session.ended_at for each in analytics.list_sessions()] == [1010.0, None]
        assert [each.session.id for each in analytics.list_sessions(active_only=True)] == [open_one.id]

    def test_a_session_never_ends_before_it_starts(self, analytics: AnalyticsPort) -> None:
        """The clock may have been set back, and ends come with the session or later."""
        early, late = a_session(started_at=2000.0, ended_at=1000.0), a_session(started_at=2000.0)
        analytics.record_many([early, late])
        analytics.record_many([SessionClosed(session_id=late.id, ended_at=1000.0)])
        assert [each.session.ended_at for each in analytics.list_sessions()] == [2000.0, 2000.0]

    def test_a_closed_session_stays_closed_when_its_opening_is_delivered_again(self, analytics: AnalyticsPort) -> None:
        """Delivery is at least once."""
        session = a_session()
        analytics.record_many([session, SessionClosed(session_id=session.id, ended_at=1010.0)])
        analytics.record_many([session])
        assert the_only(analytics.list_sessions()).session.ended_at == 1010.0

    def test_closing_an_unknown_session_changes_nothing(self, analytics: AnalyticsPort) -> None:
        """An unknown session is left alone."""
        analytics.record_many([SessionClosed(session_id=uuid7(), ended_at=1.0)])
        assert list(analytics.list_sessions()) == []

    def test_a_session_opened_and_closed_in_one_batch_is_closed(self, analytics: AnalyticsPort) -> None:
        """Ends count after all else."""
        session = a_session()
        analytics.record_many([SessionClosed(session_id=session.id, ended_at=1001.0), session])
        assert the_only(analytics.list_sessions()).session.ended_at == 1001.0

    def test_sessions_are_listed_newest_first_up_to_the_limit(self, analytics: AnalyticsPort) -> None:
        """The limit cuts off the oldest."""
        sessions = [a_session(started_at=start) for start in (20.0, 10.0, 30.0)]
        analytics.record_many(sessions)
        assert [each.session.started_at for each in analytics.list_sessions(2)] == [30.0, 20.0]

    def test_a_session_is_listed_with_what_happened_in_it(self, analytics: AnalyticsPort) -> None:
        """Only its own records count."""
        session, other = a_session(), a_session(started_at=1.0)
        analytics.record_many(
            [
                session,
                other,
                an_invocation(session, "read"),
                an_invocation(session, "read", success=False, error_kind=ErrorKind.TOOL),
                an_exposure(session, "read"),
                an_exposure(other, "read"),
            ]
        )
        [mine, others] = analytics.list_sessions()
        assert (mine.invocations, mine.failures, mine.exposures, mine.session.sequence) == (2, 1, 1, 2)
        assert (others.invocations, others.failures, others.exposures, others.session.sequence) == (0, 0, 1, 0)

    def test_an_invocation_comes_back_as_it_was_stored(self, analytics: AnalyticsPort) -> None:
        """Every field is kept."""
        session = a_session()
        plain = an_invocation(session, "read")
        full = an_invocation(
            session,
            "github__lösche \U0001f9c0",
            success=False,
            arguments_hash="0f" * 16,
            arguments='{"a": "ü"}',
            error_kind=ErrorKind.PROTOCOL,
            error_code=-32602,
            found=DiscoveryMethod.SEARCHED,
        )
        analytics.record_many([full])
        analytics.record_many([plain])
        assert list(analytics.list_invocations(session.id)) == [plain, full]

    def test_a_record_delivered_twice_is_stored_once(self, analytics: AnalyticsPort) -> None:
        """Within one batch and in two."""
        session = a_session()
        call, exposure = an_invocation(session, "read"), an_exposure(session, "read")
        analytics.record_many([session, call, exposure, call, exposure])
        analytics.record_many([call, exposure, session])
        assert list(analytics.list_invocations(session.id)) == [call]
        assert list(analytics.list_exposures(session.id)) == [exposure]
        assert len(analytics.list_sessions()) == 1

    def test_an_invocation_may_arrive_before_its_session(self, analytics: AnalyticsPort) -> None:
        """Nothing is lost by the order of arrival."""
        session = a_session()
        call = an_invocation(session, "read")
        analytics.record_many([call, an_exposure(session, "read")])
        analytics.record_many([session])
        assert list(analytics.list_invocations(session.id)) == [call]
        assert the_only(analytics.list_sessions()).exposures == 1

    def test_a_batch_with_something_that_is_no_record_is_refused_whole(self, analytics: AnalyticsPort) -> None:
        """All or nothing."""
        session = a_session()
        with pytest.raises(RecordRejectedError):
            analytics.record_many([session, an_invocation(session, "read"), cast("Record", object())])
        assert list(analytics.list_sessions()) == []
        assert list(analytics.list_invocations(session.id)) == []

    def test_text_that_no_database_holds_comes_back_as_it_was(self, analytics: AnalyticsPort) -> None:
        """NUL and lone surrogates, and whatever a store writes in their place."""
        odd = ["re\0ad", "re\ud83dad", "re\x1aad", "re\x1a0000ad", "read"]
        session = a_session(
            client=ClientInfo(name="\ud800", version="\0"), keys={"\0": "\udfff"}, tools_available=("\0",)
        )
        calls = [an_invocation(session, tool, upstream="\0", arguments='{"a": "\0"}') for tool in odd]
        exposure = an_exposure(session, "\0", "\ud83d", predictor="\0", reason="\ud83d")
        analytics.record_many([session, *calls, exposure])
        assert list(analytics.list_invocations(session.id)) == calls
        assert list(analytics.list_exposures(session.id)) == [exposure]
        assert values(the_only(analytics.list_sessions()).session) == values(session) | {"sequence": len(odd)}
        assert {call.tool for call in the_only(analytics.list_training_sessions()).calls} == set(odd)
        assert analytics.list_known_tools() == {"\0", "\ud83d", *odd}
        analytics.refresh_cooccurrences(1.0)
        assert {odd[0], odd[1]} in [{pair.tool_a, pair.tool_b} for pair in analytics.get_cooccurrences([odd[0]])]

    def test_an_error_code_beyond_all_measure_does_not_lose_the_record(self, analytics: AnalyticsPort) -> None:
        """Servers may answer with any number."""
        session = a_session()
        calls = [an_invocation(session, "read", success=False, error_code=code) for code in (10**30, -(2**63), 2**63)]
        analytics.record_many(calls)
        assert [call.id for call in analytics.list_invocations(session.id)] == [call.id for call in calls]

    def test_names_of_any_length_are_recorded(self, analytics: AnalyticsPort) -> None:
        """Those longer than `MAX_TOOL_LENGTH` form no pairs."""
        session = a_session()
        names = ["\U0001f9c0" * MAX_TOOL_LENGTH, "\0" * MAX_TOOL_LENGTH, "x" * (MAX_TOOL_LENGTH + 1), "y" * 10_000]
        self._use(analytics, session, *names)
        assert [call.tool for call in analytics.list_invocations(session.id)] == names
        assert analytics.refresh_cooccurrences(1.0) == 1
        assert [pair.count for pair in analytics.get_cooccurrences(names)] == [1]

    def test_a_list_that_differs_from_the_one_before_is_a_change(self, analytics: AnalyticsPort) -> None:
        """In its order as well; answers are no lists, and the first list of a session changes nothing."""
        session, other = a_session(), a_session(started_at=1.0)
        shown = [("a", "b"), ("a", "b"), ("b", "a"), ("b", "a", "c")]
        lists = [an_exposure(session, *names, timestamp=10.0 + at) for at, names in enumerate(shown)]
        answers = [
            an_exposure(session, "z", surface=surface, timestamp=10.5)
            for surface in (SEARCH_SURFACE, CONTEXT_SURFACE, SEARCH_SURFACE)
        ]
        analytics.record_many([session, other, *lists[::-1], *answers, an_exposure(other, "z")])
        [mine, others] = analytics.list_sessions()
        assert (mine.exposures, mine.list_changes, mine.searches) == (7, 2, 2)
        assert (others.exposures, others.list_changes, others.searches) == (1, 0, 0)

    def test_a_pair_is_counted_once_a_session_with_its_least_distance(self, analytics: AnalyticsPort) -> None:
        """The pair is unordered; the distance is averaged over sessions."""
        first, second, third = a_session(), a_session(), a_session()
        self._use(analytics, first, "b", "x", "x", "a", "b", "a")
        self._use(analytics, second, "a", "x", "x", "b")
        self._use(analytics, third, "a", "a")
        assert analytics.refresh_cooccurrences(50.0) == 3
        pairs = {(each.tool_a, each.tool_b): each for each in analytics.get_cooccurrences(["a"])}
        assert set(pairs) == {("a", "b"), ("a", "x")}
        assert (pairs["a", "b"].count, pairs["a", "b"].average_distance) == (2, 2.0)
        assert (pairs["a", "x"].count, pairs["a", "x"].average_distance) == (2, 1.0)
        assert {each.last_updated for each in pairs.values()} == {50.0}

    def test_known_tools_are_those_that_a_list_had_or_hid_or_that_ran(self, analytics: AnalyticsPort) -> None:
        """Answers to a search are no lists, and names that were only called are no tools."""
        session = a_session()
        shown = an_exposure(session, "a", hidden=("b",))
        searched = an_exposure(session, "c", surface=SEARCH_SURFACE)
        unknown = an_invocation(session, "d", success=False, error_kind=ErrorKind.PROTOCOL)
        own = [an_invocation(session, "call_tool", upstream=OWN_UPSTREAM), an_invocation(session, "Bash", upstream="")]
        analytics.record_many([session, shown, searched, unknown, *own, an_invocation(session, "e")])
        assert analytics.list_known_tools() == {"a", "b", "e"}

    def test_failed_calls_form_no_pairs_and_only_those_of_tools_that_ran_are_uses(
        self, analytics: AnalyticsPort
    ) -> None:
        """There may be no tool of that name; a tool that failed was there."""
        session = a_session()
        analytics.record_many([session, an_invocation(session, "good"), an_invocation(session, "other")])
        for kind in ErrorKind:
            analytics.record_many([an_invocation(session, kind.value, success=False, error_kind=kind)])
        analytics.refresh_cooccurrences(1.0)
        assert [(each.tool_a, each.tool_b) for each in analytics.get_cooccurrences(["good"])] == [("good", "other")]
        [found] = analytics.list_proxied_sessions(1)
        assert {call.tool for call in found.calls if call.ran} == {"good", "other", "tool"}

    def test_meta_tools_form_no_pairs(self, analytics: AnalyticsPort) -> None:
        """They say how a tool was found, not which was needed; a server's tool of such a name counts."""
        session = a_session()
        own = an_invocation(session, "call_tool", upstream=OWN_UPSTREAM)
        analytics.record_many([session, own, an_invocation(session, "good"), an_invocation(session, "mark_tool")])
        analytics.refresh_cooccurrences(1.0)
        pairs = analytics.get_cooccurrences(["good", "call_tool"])
        assert [(each.tool_a, each.tool_b) for each in pairs] == [("good", "mark_tool")]

    def test_pairs_are_given_most_frequent_first_and_each_once(self, analytics: AnalyticsPort) -> None:
        """Then by name; asking for both tools of a pair does not give it twice."""
        for tools in (("c", "a"), ("a", "c"), ("b", "a"), ("a", "d"), ("y", "z")):
            self._use(analytics, a_session(), *tools)
        analytics.refresh_cooccurrences(1.0)
        found = [(each.tool_a, each.tool_b) for each in analytics.get_cooccurrences(["a", "c", "missing"])]
        assert found == [("a", "c"), ("a", "b"), ("a", "d")]
        assert list(analytics.get_cooccurrences([])) == []

    def test_a_refresh_forgets_what_the_invocations_no_longer_say(self, analytics: AnalyticsPort) -> None:
        """A second refresh counts nothing twice."""
        self._use(analytics, a_session(), "a", "b")
        analytics.refresh_cooccurrences(1.0)
        self._use(analytics, a_session(), "a", "c")
        assert analytics.refresh_cooccurrences(2.0) == 2
        assert [each.count for each in analytics.get_cooccurrences(["a"])] == [1, 1]

    def test_a_session_with_very_many_tools_makes_a_bounded_number_of_pairs(self, analytics: AnalyticsPort) -> None:
        """One odd session cannot fill the store."""
        names = [f"tool_{number:04}" for number in range(MAX_TOOLS_PER_SESSION + 50)]
        self._use(analytics, a_session(), *names, names[0])
        assert analytics.refresh_cooccurrences(1.0) == MAX_TOOLS_PER_SESSION * (MAX_TOOLS_PER_SESSION - 1) // 2
        assert list(analytics.get_cooccurrences([names[-1]])) == []

    def test_co_occurrence_covers_every_session_however_many_there_are(self, analytics: AnalyticsPort) -> None:
        """A store that reads its invocations piece by piece misses none of them."""
        records: list[Record] = []
        for _ in range(1200):
            session = a_session()
            records += [an_invocation(session, "a"), an_invocation(session, "b")]
        analytics.record_many(records)
        analytics.refresh_cooccurrences(1.0)
        assert [each.count for each in analytics.get_cooccurrences(["a"])] == [1200]

    def test_pairs_of_more_tools_than_one_statement_takes_are_found(self, analytics: AnalyticsPort) -> None:
        """Clients have thousands of tools."""
        self._use(analytics, a_session(), "a", "b")
        analytics.refresh_cooccurrences(1.0)
        many = [f"tool_{number}" for number in range(40_000)]
        assert len(analytics.get_cooccurrences([*many, "a"])) == 1

    def test_one_at_a_time_holds_the_lease_for_maintenance(self, analytics: AnalyticsPort) -> None:
        """Others are told at once; when it is given back anybody may have it."""
        for _ in range(2):
            with analytics.maintenance_lease() as mine, analytics.maintenance_lease() as another:
                assert (mine, another) == (True, False)
        with analytics.maintenance_lease() as again:
            assert again

    def test_a_lease_ends_with_an_error_of_the_work_which_passes(self, analytics: AnalyticsPort) -> None:
        """Whatever went wrong, the next one may try."""

        def work() -> None:
            with analytics.maintenance_lease():
                raise OSError("the work failed")

        with pytest.raises(OSError, match="the work failed"):
            work()
        with analytics.maintenance_lease() as again:
            assert again

    def test_records_are_stored_while_somebody_holds_the_lease(self, analytics: AnalyticsPort) -> None:
        """Maintenance stops nobody, and is itself done on the same store."""
        with analytics.maintenance_lease():
            analytics.record_many([a_session()])
            assert len(analytics.list_sessions()) == 1

    def test_threads_may_share_a_store(self, analytics: AnalyticsPort) -> None:
        """A writer and readers at once lose nothing."""
        session = a_session()
        calls = [an_invocation(session, "read") for _ in range(40)]

        def store(call: ToolInvocation) -> int:
            analytics.record_many([call])
            return len(analytics.list_invocations(session.id))

        with ThreadPoolExecutor(4) as pool:
            seen = list(pool.map(store, calls))
        assert max(seen) == len(calls)
        assert list(analytics.list_invocations(session.id)) == calls

    def _use(self, analytics: AnalyticsPort, session: Session, *tools: str) -> UUID:
        analytics.record_many([session, *(an_invocation(session, tool) for tool in tools)])
        return session.id

    def test_a_session_has_the_mean_vector_of_the_pairs_that_it_taught(self, analytics: AnalyticsPort) -> None:
        """Vectors of the rarer model, and pairs without a vector, are ignored."""
        first, second, third = a_session(), a_session(), a_session()
        vectors = ((first, (1.0, 0.0), "minilm"), (first, (0.0, 1.0), "minilm"), (second, (0.0, 1.0), "minilm"))
        others = ((first, (1.0, 0.0, 0.0), "other"), (third, (), ""))
        pairs = [
            a_learned_pair(session_id=session.id, vector=np.array(vector, np.float32), model=model)
            for session, vector, model in (*vectors, *others)
        ]
        analytics.record_many([first, second, third, *pairs])
        found = analytics.get_context_vectors([first.id, second.id, third.id])
        assert {id_: vector.tolist() for id_, vector in found.items()} == {first.id: [0.5, 0.5], second.id: [0.0, 1.0]}
        assert analytics.get_context_vectors([third.id]) == {}
