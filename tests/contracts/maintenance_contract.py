"""What looking after a store must do; part of `AnalyticsContract`."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from riglm.domain.learning import WARM_SET_TTL_SECONDS, PairSource
from riglm.domain.policy import OverrideScope
from riglm.domain.retention import DAY_SECONDS, ErasureRequest, ErasureScope, Expiry, RemovedCounts
from riglm.domain.session import ClientInfo, Session, uuid7
from riglm.ports.analytics import AnalyticsPort, Record, RecordKind, SessionClosed
from tests.records import a_learned_pair, a_session, a_token_usage, a_warm_set, an_exposure, an_invocation, an_override

ANN, BOB = "a" * 32, "b" * 32


def a_day(number: int) -> float:
    """The beginning of a day, in seconds since the epoch."""
    return number * DAY_SECONDS


def summed(steps: Iterable[RemovedCounts]) -> RemovedCounts:
    """What all steps removed together."""
    return sum(steps, RemovedCounts())


def a_used_session(start: float, *, ended: float | None = None, **known: Any) -> tuple[Session, list[Any]]:
    """A session with all its records: two calls, and what it was shown."""
    session = a_session(started_at=start, ended_at=ended, tools_available=("read", "write"), **known)
    calls = [an_invocation(session, tool) for tool in ("read", "write")]
    return session, [session, *calls, an_exposure(session, "read", hidden=("write",))]


def known_sessions(analytics: AnalyticsPort) -> set[UUID]:
    """The ids of all sessions that are stored."""
    return {each.session.id for each in analytics.list_sessions()}


def exported(
    analytics: AnalyticsPort, kind: RecordKind, since: float = 0.0, at_once: int = 1000
) -> list[dict[str, Any]]:
    """All that is handed out of one kind."""
    return [dict(row) for part in analytics.export(kind, since, at_once) for row in part]


class MaintenanceContract:
    """Expects the fixture `analytics` of `AnalyticsContract`."""

    @pytest.fixture
    def used(self, analytics: AnalyticsPort) -> tuple[Session, Session]:
        """A session that ended on day 10 and one that ended on day 100, with their records."""
        old, its_records = a_used_session(a_day(10), ended=a_day(10) + 60)
        young, others = a_used_session(a_day(100), ended=a_day(100) + 60)
        analytics.record_many([*its_records, *others])
        return old, young

    def test_what_is_too_old_is_purged_and_what_is_young_stays(
        self, analytics: AnalyticsPort, used: tuple[Session, Session]
    ) -> None:
        """With everything that belongs to it, and as it was counted before."""
        old, young = used
        expiry = Expiry.of_all(a_day(50), now=a_day(110))
        assert analytics.count_expired(expiry) == RemovedCounts(sessions=1, invocations=2, exposures=1)
        removed = summed(analytics.purge(expiry))
        assert (removed.sessions, removed.invocations, removed.exposures) == (1, 2, 1)
        assert known_sessions(analytics) == {young.id}
        assert list(analytics.list_invocations(old.id)) == []
        assert list(analytics.list_exposures(old.id)) == []
        assert len(analytics.list_invocations(young.id)) == 2
        assert analytics.list_exposures(young.id)[0].hidden == ("write",)
        assert analytics.count_expired(expiry) == RemovedCounts()

    def test_nothing_is_purged_without_a_limit(self, analytics: AnalyticsPort, used: tuple[Session, Session]) -> None:
        """For ever is for ever."""
        assert summed(analytics.purge(Expiry(now=a_day(100_000)))) == RemovedCounts()
        assert len(known_sessions(analytics)) == 2

    def test_a_purge_goes_in_steps_and_may_be_given_up_after_any(
        self, analytics: AnalyticsPort, used: tuple[Session, Session]
    ) -> None:
        """The next one does the rest."""
        old, _ = used
        expiry = Expiry.of_all(a_day(50), now=a_day(110))
        steps = analytics.purge(expiry, at_once=1)
        assert next(steps) == RemovedCounts(invocations=1)
        assert len(analytics.list_invocations(old.id)) == 1
        removed = summed(analytics.purge(expiry, at_once=1))
        assert (removed.sessions, removed.invocations, removed.exposures) == (1, 1, 1)

    def test_a_session_that_goes_on_is_not_purged_however_old(self, analytics: AnalyticsPort) -> None:
        """Nor one in which something happened lately; its older calls go all the same."""
        open_one, ended = a_session(started_at=a_day(1)), a_session(started_at=a_day(1), ended_at=a_day(90))
        early, late = (
            an_invocation(ended, "read", timestamp=a_day(1)),
            an_invocation(ended, "read", timestamp=a_day(89)),
        )
        analytics.record_many([open_one, ended, early, late, an_invocation(open_one, "read", timestamp=a_day(1))])
        removed = summed(analytics.purge(Expiry.of_all(a_day(50), now=a_day(100))))
        assert (removed.sessions, removed.invocations) == (0, 2)
        assert known_sessions(analytics) == {open_one.id, ended.id}
        assert list(analytics.list_invocations(ended.id)) == [late]

    def test_a_session_is_kept_as_long_as_anything_in_it(self, analytics: AnalyticsPort) -> None:
        """Calls may be kept longer than sessions."""
        session, records = a_used_session(a_day(1), ended=a_day(2))
        analytics.record_many(records)
        expiry = Expiry(now=a_day(100), sessions=a_day(90), exposures=a_day(90))
        assert analytics.count_expired(expiry) == RemovedCounts(exposures=1)
        assert summed(analytics.purge(expiry)) == RemovedCounts(exposures=1)
        assert known_sessions(analytics) == {session.id}

    def test_learned_pairs_go_by_their_last_use(self, analytics: AnalyticsPort) -> None:
        """The moment itself is kept."""
        pairs = [a_learned_pair(updated_at=a_day(day)) for day in (1, 49, 50)]
        analytics.record_many(pairs)
        assert summed(analytics.purge(Expiry(now=a_day(100), learned_pairs=a_day(50)))).learned_pairs == 2
        assert [pair.id for pair in analytics.list_learned_pairs("minilm")] == [pairs[2].id]

    def test_a_clock_is_reliable_up_to_two_days_after_the_noted_time(self, analytics: AnalyticsPort) -> None:
        """Nothing is known of a new store. Later, neither records of the last day nor times to come prove anything."""
        started = a_day(99)
        assert analytics.get_reliable_time(a_day(100), started) == a_day(100)
        analytics.note_time(a_day(100), a_day(100))
        analytics.record_many([a_session(started_at=at) for at in (a_day(500) - 3600, a_day(600))])
        assert [analytics.get_reliable_time(a_day(day), a_day(day)) for day in (50, 102, 103, 500)] == [
            a_day(50),
            a_day(102),
            a_day(100),
            a_day(100),
        ]

    @pytest.mark.parametrize(
        "record",
        [
            lambda session, at: an_invocation(session, "read", timestamp=at),
            lambda session, at: an_exposure(session, "read", timestamp=at),
            lambda _, at: a_session(started_at=at),
        ],
        ids=["call", "list", "session"],
    )
    def test_a_clock_is_reliable_up_to_two_days_after_a_record_of_an_earlier_day(
        self, analytics: AnalyticsPort, record: Callable[[Session, float], Record]
    ) -> None:
        """Before anything was noted, after any record of a process that started before."""
        start, last = a_day(100), a_day(100) + 5.0
        session = a_session(started_at=start)
        analytics.record_many([session, record(session, last)])
        assert analytics.get_reliable_time(start + 60, start + 30) == start + 60
        assert analytics.get_reliable_time(a_day(500), a_day(500)) == last
        analytics.note_time(a_day(10), start)
        assert analytics.get_reliable_time(start + 60, start + 30) == a_day(10)
        assert analytics.get_reliable_time(a_day(101) + 60, start) == a_day(101) + 60
        assert analytics.get_reliable_time(a_day(108), start) == last

    def test_a_clock_behind_the_records_notes_no_time(self, analytics: AnalyticsPort) -> None:
        """A later time is noted all the same, since what is ahead may be the records."""
        analytics.record_many([a_session(started_at=a_day(500))])
        analytics.note_time(a_day(100), a_day(100))
        assert analytics.get_reliable_time(a_day(400), a_day(400)) == a_day(400)
        analytics.note_time(a_day(300), a_day(499) + 1)
        analytics.note_time(a_day(100), a_day(100))
        assert analytics.get_reliable_time(a_day(400), a_day(400)) == a_day(300)
        analytics.note_time(a_day(301), a_day(301))
        assert analytics.get_reliable_time(a_day(400), a_day(400)) == a_day(301)
        analytics.note_time(a_day(200), a_day(499) + 1)
        assert analytics.get_reliable_time(a_day(400), a_day(400)) == a_day(200)

    def test_records_of_the_future_stay_and_keep_no_others(
        self, analytics: AnalyticsPort, used: tuple[Session, Session]
    ) -> None:
        """A clock was ahead and is right again: what it stamped goes in its turn."""
        session = a_session(started_at=a_day(500))
        shown = an_exposure(session, "read", timestamp=a_day(500) + 2)
        analytics.record_many([session, an_invocation(session, "read", timestamp=a_day(500) + 1), shown])
        assert analytics.end_idle_sessions(a_day(110)) == 0
        removed = summed(analytics.purge(Expiry.of_all(a_day(50), now=a_day(110))))
        assert (removed.sessions, removed.invocations, removed.exposures) == (1, 2, 1)
        assert known_sessions(analytics) == {session.id, used[1].id}
        assert analytics.end_idle_sessions(a_day(501)) == 1
        [ended] = [each.session for each in analytics.list_sessions() if each.session.id == session.id]
        assert ended.ended_at == a_day(500) + 2
        removed = summed(analytics.purge(Expiry.of_all(a_day(501), now=a_day(601))))
        assert (removed.sessions, removed.invocations, removed.exposures) == (2, 3, 2)

    def test_what_has_expired_by_itself_is_purged(self, analytics: AnalyticsPort) -> None:
        """Overrides by their time, warm sets by their age, overrides of a session with the session."""
        now = a_day(100)
        gone, lasting = an_override(expires_at=now), an_override()
        orphan = an_override(scope=OverrideScope.SESSION, key=str(uuid7()), created_at=a_day(1))
        young = an_override(scope=OverrideScope.SESSION, key=str(uuid7()), created_at=a_day(99))
        for each in (lasting, orphan, young, gone):
            analytics.put_override(each)
        old_set = analytics.put_warm_set(a_warm_set("a", created_at=now - WARM_SET_TTL_SECONDS - 1), None)
        assert summed(analytics.purge(Expiry(now=now, sessions=a_day(50)))) == RemovedCounts(overrides=2, warm_sets=1)
        assert {each.id for each in analytics.list_overrides()} == {lasting.id, young.id}
        assert analytics.get_warm_set(old_set.key) is None

    @pytest.mark.parametrize("whose", list(ErasureScope))
    def test_whoever_is_forgotten_leaves_nothing(self, analytics: AnalyticsPort, whose: ErasureScope) -> None:
        """And nothing of anybody else goes."""
        mine, my_records = a_used_session(1000.0, principal=ANN, client_id=ANN, client=ClientInfo(name="ann's"))
        other, their_records = a_used_session(1000.0, principal=BOB, client_id=BOB, client=ClientInfo(name="bob's"))
        analytics.record_many([*my_records, *their_records])
        key = str(mine.id) if whose is ErasureScope.SESSION else ANN
        whom = ErasureRequest(whose=whose, key=key, at=2000.0)
        expected = RemovedCounts(sessions=1, invocations=2, exposures=1)
        assert analytics.count_erasable(whom) == expected
        assert summed(analytics.erase(whom, at_once=1)) == expected
        assert known_sessions(analytics) == {other.id}
        assert list(analytics.list_invocations(mine.id)) == []
        assert list(analytics.list_exposures(mine.id)) == []
        assert len(analytics.list_invocations(other.id)) == 2
        assert analytics.count_erasable(whom) == RemovedCounts()
        assert summed(analytics.erase(whom)) == RemovedCounts()

    @pytest.mark.parametrize(
        ("whose", "key"),
        [
            (ErasureScope.SESSION, None),
            (ErasureScope.CLIENT, ANN),
            (ErasureScope.CLIENT, "ann's"),
            (ErasureScope.PRINCIPAL, ANN),
        ],
    )
    def test_token_usage_is_erased_with_its_subject_and_purged_by_age(
        self, analytics: AnalyticsPort, whose: ErasureScope, key: str | None
    ) -> None:
        """An erased subject's token usage is rejected afterwards; of a session, the larger count stays."""
        mine = a_token_usage(client="ann's", client_id=ANN, principal=ANN, requests=3)
        old, other = a_token_usage(started_at=a_day(1)), a_token_usage(started_at=a_day(100))
        analytics.record_many([mine, old, other])
        analytics.record_many([replace(mine, requests=2, output=9), replace(old, requests=7)])
        old = replace(old, requests=7)
        assert list(analytics.list_token_usage()) == [other, old, mine]
        assert list(analytics.list_token_usage(limit=1)) == [other]
        expected = RemovedCounts(token_usages=1)
        whom = ErasureRequest(whose=whose, key=key or str(mine.session_id), at=2000.0)
        assert analytics.count_erasable(whom) == expected
        assert summed(analytics.erase(whom)) == expected
        analytics.record_many([mine])
        assert list(analytics.list_token_usage()) == [other, old]
        expiry = Expiry(now=a_day(110), sessions=a_day(50))
        assert analytics.count_expired(expiry) == expected == summed(analytics.purge(expiry))
        assert list(analytics.list_token_usage()) == [other]

    def test_a_client_is_forgotten_by_its_name_as_well(self, analytics: AnalyticsPort) -> None:
        """Several may have the same name."""
        for _ in range(2):
            analytics.record_many(a_used_session(1000.0, client=ClientInfo(name="ann's"), client_id=uuid7().hex)[1])
        whom = ErasureRequest(whose=ErasureScope.CLIENT, key="ann's", at=2000.0)
        assert summed(analytics.erase(whom)).sessions == 2
        assert known_sessions(analytics) == set()

    def test_what_is_stored_by_principal_goes_with_the_principal(self, analytics: AnalyticsPort) -> None:
        """Learned pairs, overrides and warm sets."""
        pairs = [a_learned_pair(scope=scope) for scope in (ANN, BOB, "")]
        analytics.record_many(pairs)
        overrides = [an_override(scope=OverrideScope.PRINCIPAL, key=key) for key in (ANN, BOB)]
        sets = [a_warm_set("read", principal=key) for key in (ANN, BOB)]
        for override, warm_set in zip(overrides, sets, strict=True):
            analytics.put_override(override)
            analytics.put_warm_set(warm_set, None)
        whom = ErasureRequest(whose=ErasureScope.PRINCIPAL, key=ANN, at=5000.0)
        expected = RemovedCounts(learned_pairs=1, overrides=1, warm_sets=1)
        assert analytics.count_erasable(whom) == expected
        assert summed(analytics.erase(whom)) == expected
        assert {pair.id for pair in analytics.list_learned_pairs("minilm")} == {pairs[1].id, pairs[2].id}
        assert list(analytics.list_overrides()) == [overrides[1]]
        kept = [analytics.get_warm_set(each.key) for each in sets]
        assert kept == [None, sets[1]]

    def test_warm_sets_of_a_client_are_removed_with_the_client(self, analytics: AnalyticsPort) -> None:
        """Those of other clients of the same principal stay."""
        sets = [a_warm_set("read", client=name) for name in ("ann's", "bob's")]
        for each in sets:
            analytics.put_warm_set(each, None)
        whom = ErasureRequest(whose=ErasureScope.CLIENT, key="ann's", at=5000.0)
        assert analytics.count_erasable(whom) == RemovedCounts(warm_sets=1)
        assert summed(analytics.erase(whom)) == RemovedCounts(warm_sets=1)
        kept = [analytics.get_warm_set(each.key) for each in sets]
        assert kept == [None, sets[1]]

    def test_callers_without_a_name_can_be_forgotten(self, analytics: AnalyticsPort) -> None:
        """They are all one."""
        records = a_used_session(1000.0)[1]
        named, theirs = a_used_session(1000.0, principal=BOB)
        analytics.record_many([*records, *theirs])
        assert summed(analytics.erase(ErasureRequest(whose=ErasureScope.PRINCIPAL, key="", at=2000.0))).sessions == 1
        assert known_sessions(analytics) == {named.id}

    def test_forgetting_callers_without_a_name_keeps_what_others_taught_in_the_scope_of_all(
        self, analytics: AnalyticsPort
    ) -> None:
        """The scope of the whole instance is the empty text as well."""
        no_client, ann = a_session(), a_session(principal=ANN)
        theirs, anns = a_learned_pair(session_id=no_client.id), a_learned_pair(session_id=ann.id)
        analytics.record_many([no_client, ann, theirs, anns])
        removed = summed(analytics.erase(ErasureRequest(whose=ErasureScope.PRINCIPAL, key="", at=5000.0)))
        assert removed == RemovedCounts(sessions=1, learned_pairs=1)
        late = a_learned_pair(session_id=ann.id, updated_at=1002.0)
        analytics.record_many([late, a_learned_pair(session_id=no_client.id)])
        assert {pair.id for pair in analytics.list_learned_pairs("minilm")} == {anns.id, late.id}

    def test_forgetting_again_by_a_clock_that_is_behind_takes_nothing_back(self, analytics: AnalyticsPort) -> None:
        """What started before the first time is dropped still, and both times are heard of only once."""
        for at in (2000.0, 500.0):
            summed(analytics.erase(ErasureRequest(whose=ErasureScope.PRINCIPAL, key=ANN, at=at)))
        assert analytics.count_erasures() == 2000.0
        analytics.record_many(a_used_session(1000.0, principal=ANN)[1])
        assert known_sessions(analytics) == set()

    def test_a_forgetting_by_a_clock_ahead_hides_no_other(self, analytics: AnalyticsPort) -> None:
        """Whoever watches sees the number grow."""
        summed(analytics.erase(ErasureRequest(whose=ErasureScope.PRINCIPAL, key=ANN, at=9000.0)))
        heard = analytics.count_erasures(1000.0)
        summed(analytics.erase(ErasureRequest(whose=ErasureScope.PRINCIPAL, key=BOB, at=2000.0)))
        assert analytics.count_erasures(1000.0) > heard > 0.0

    def test_a_refresh_by_a_clock_ahead_is_set_right_by_the_next(self, analytics: AnalyticsPort) -> None:
        """Otherwise it would seem to be the latest for long."""
        analytics.record_many(a_used_session(1000.0)[1])
        for now in (9000.0, 2000.0):
            analytics.refresh_cooccurrences(now)
            assert analytics.get_refresh_time() == now

    def test_a_learned_pair_goes_when_nobody_else_taught_it(self, analytics: AnalyticsPort) -> None:
        """Others keep what they taught as well, and an override made for the session goes."""
        mine, other = a_session(), a_session()
        alone, shared, unknown = a_learned_pair(), a_learned_pair(), a_learned_pair()
        training_queue = [
            a_learned_pair(id=alone.id, session_id=mine.id),
            a_learned_pair(id=shared.id, session_id=mine.id),
            a_learned_pair(id=shared.id, session_id=other.id, updated_at=1001.0),
            unknown,
        ]
        analytics.record_many([mine, other, *training_queue])
        analytics.put_override(an_override(scope=OverrideScope.SESSION, key=str(mine.id)))
        removed = summed(analytics.erase(ErasureRequest(whose=ErasureScope.SESSION, key=str(mine.id), at=5000.0)))
        assert removed == RemovedCounts(sessions=1, learned_pairs=1, overrides=1)
        assert {pair.id for pair in analytics.list_learned_pairs("minilm")} == {shared.id, unknown.id}

    @pytest.mark.parametrize(
        "whom", [(ErasureScope.PRINCIPAL, ANN), (ErasureScope.CLIENT, ANN), (ErasureScope.CLIENT, "ann's")]
    )
    def test_what_somebody_taught_is_found_when_the_session_is_purged(
        self, analytics: AnalyticsPort, whom: tuple[ErasureScope, str]
    ) -> None:
        """What others taught as well stays, and so does what nobody is known to have taught."""
        ann = {"principal": ANN, "client_id": ANN, "client": ClientInfo(name="ann's")}
        bob = {"principal": BOB, "client_id": BOB, "client": ClientInfo(name="bob's")}
        long_ago = [a_session(started_at=a_day(1), ended_at=a_day(2), **who) for who in (ann, bob)]
        lately = [a_session(started_at=a_day(99), **who) for who in (ann, bob)]
        alone, again, with_purged, with_kept, bobs, unknown = (a_learned_pair(updated_at=a_day(99)) for _ in range(6))
        example = [(alone, long_ago[0]), (again, long_ago[0]), (again, lately[0])]
        example += [(with_purged, each) for each in long_ago] + [(with_kept, long_ago[0]), (with_kept, lately[1])]
        example += [(bobs, long_ago[1])]
        training_queue = [a_learned_pair(id=pair.id, session_id=by.id, updated_at=a_day(99)) for pair, by in example]
        analytics.record_many([*long_ago, *lately, *training_queue, unknown])
        assert summed(analytics.purge(Expiry(now=a_day(100), sessions=a_day(50)))).sessions == 2
        whom_to_forget = ErasureRequest(whose=whom[0], key=whom[1], at=a_day(100))
        assert analytics.count_erasable(whom_to_forget) == RemovedCounts(sessions=1, learned_pairs=1)
        assert summed(analytics.erase(whom_to_forget)) == RemovedCounts(sessions=1, learned_pairs=2)
        kept = {pair.id for pair in analytics.list_learned_pairs("minilm")}
        assert kept == {with_purged.id, with_kept.id, bobs.id, unknown.id}
        others = ErasureRequest(whose=ErasureScope.CLIENT, key=BOB, at=a_day(100))
        assert summed(analytics.erase(others)) == RemovedCounts(sessions=1, learned_pairs=3)
        assert {pair.id for pair in analytics.list_learned_pairs("minilm")} == {unknown.id}

    def test_a_pair_that_goes_takes_along_who_taught_it(self, analytics: AnalyticsPort) -> None:
        """And may be learned again by somebody else."""
        ann, bob = a_session(started_at=a_day(1), ended_at=a_day(2), principal=ANN), a_session(started_at=a_day(1))
        pair = a_learned_pair(session_id=ann.id, updated_at=a_day(1))
        analytics.record_many([ann, bob, pair])
        assert summed(analytics.purge(Expiry.of_all(a_day(50), now=a_day(100)))).learned_pairs == 1
        analytics.record_many([a_learned_pair(id=pair.id, session_id=bob.id, updated_at=a_day(99))])
        assert (
            analytics.count_erasable(ErasureRequest(whose=ErasureScope.PRINCIPAL, key=ANN, at=a_day(100)))
            == RemovedCounts()
        )
        assert len(analytics.list_learned_pairs("minilm")) == 1

    @pytest.mark.parametrize(
        "whom", [(ErasureScope.PRINCIPAL, ANN), (ErasureScope.CLIENT, ANN), (ErasureScope.CLIENT, "ann's")]
    )
    def test_a_pair_that_comes_after_its_session_was_purged_is_forgotten_all_the_same(
        self, analytics: AnalyticsPort, whom: tuple[ErasureScope, str]
    ) -> None:
        """Whether it is stored before or after its teacher is forgotten; what others taught as well stays."""
        anns, bobs = (
            PairSource(client_id=key, client_name=name, principal=key) for key, name in ((ANN, "ann's"), (BOB, "bob's"))
        )
        session = a_session(
            started_at=a_day(1), ended_at=a_day(2), principal=ANN, client_id=ANN, client=ClientInfo(name="ann's")
        )
        known: dict[str, Any] = {"session_id": session.id, "teacher": anns, "updated_at": a_day(2)}
        again, late, shared, replayed = (a_learned_pair(**known) for _ in range(4))
        analytics.record_many([session, again])
        assert summed(analytics.purge(Expiry(now=a_day(100), sessions=a_day(50)))).sessions == 1
        by_bob = a_learned_pair(id=shared.id, session_id=uuid7(), teacher=bobs, updated_at=a_day(2))
        analytics.record_many([again, late, shared, by_bob])
        whom_to_forget = ErasureRequest(whose=whom[0], key=whom[1], at=a_day(100))
        assert analytics.count_erasable(whom_to_forget) == RemovedCounts(learned_pairs=2)
        assert summed(analytics.erase(whom_to_forget)) == RemovedCounts(learned_pairs=2)
        analytics.record_many([late, replayed])
        assert {pair.id for pair in analytics.list_learned_pairs("minilm")} == {shared.id}
        back = a_learned_pair(session_id=uuid7(), teacher=anns, updated_at=a_day(101))
        analytics.record_many([back])
        assert {pair.id for pair in analytics.list_learned_pairs("minilm")} == {shared.id, back.id}

    def test_it_is_told_which_sessions_were_forgotten(self, analytics: AnalyticsPort) -> None:
        """Those that were stored, and those that came later, from a time on."""
        mine, records = a_used_session(1000.0, principal=ANN)
        late, more = a_used_session(1001.0, principal=ANN)
        analytics.record_many(records)
        assert list(analytics.list_erased_sessions()) == []
        summed(analytics.erase(ErasureRequest(whose=ErasureScope.PRINCIPAL, key=ANN, at=2000.0)))
        analytics.record_many(more)
        told = {ErasureRequest(whose=ErasureScope.SESSION, key=str(each.id), at=2000.0) for each in (mine, late)}
        assert set(analytics.list_erased_sessions(2000.0)) == told
        assert list(analytics.list_erased_sessions(2000.5)) == []

    def test_records_of_a_forgotten_session_that_come_late_are_dropped(self, analytics: AnalyticsPort) -> None:
        """They waited in a queue or a spool. All else in the batch is stored."""
        session, records = a_used_session(1000.0)
        summed(analytics.erase(ErasureRequest(whose=ErasureScope.SESSION, key=str(session.id), at=2000.0)))
        other, others = a_used_session(1000.0)
        late: list[Any] = [SessionClosed(session_id=session.id, ended_at=3000.0), a_learned_pair(session_id=session.id)]
        analytics.record_many([*records, *others, *late])
        assert known_sessions(analytics) == {other.id}
        assert list(analytics.list_invocations(session.id)) == []
        assert list(analytics.list_exposures(session.id)) == []
        assert list(analytics.list_learned_pairs("minilm")) == []
        assert len(analytics.list_invocations(other.id)) == 2

    @pytest.mark.parametrize(
        "whom", [(ErasureScope.PRINCIPAL, ANN), (ErasureScope.CLIENT, ANN), (ErasureScope.CLIENT, "ann's")]
    )
    def test_a_session_that_the_store_did_not_know_yet_is_dropped_with_all_its_records(
        self, analytics: AnalyticsPort, whom: tuple[ErasureScope, str]
    ) -> None:
        """Also with those that came before it, in whatever order."""
        session, records = a_used_session(1000.0, principal=ANN, client_id=ANN, client=ClientInfo(name="ann's"))
        _, call, *rest = records
        summed(analytics.erase(ErasureRequest(whose=whom[0], key=whom[1], at=2000.0)))
        analytics.record_many([call])
        analytics.record_many([session, *rest])
        assert known_sessions(analytics) == set()
        assert len(analytics.list_invocations(session.id)) == 1
        assert summed(analytics.finish_erasures()) == RemovedCounts(invocations=1)
        assert list(analytics.list_invocations(session.id)) == []
        assert summed(analytics.finish_erasures()) == RemovedCounts()

    def test_whoever_was_forgotten_may_come_back(self, analytics: AnalyticsPort) -> None:
        """A session that starts later is recorded, and so is what it teaches."""
        summed(analytics.erase(ErasureRequest(whose=ErasureScope.PRINCIPAL, key=ANN, at=2000.0)))
        session, records = a_used_session(2000.5, principal=ANN)
        pair = a_learned_pair(scope=ANN, updated_at=2001.0, session_id=session.id)
        stale = a_learned_pair(scope=ANN, updated_at=1999.0)
        analytics.record_many([*records, pair, stale])
        assert known_sessions(analytics) == {session.id}
        assert len(analytics.list_invocations(session.id)) == 2
        assert [each.id for each in analytics.list_learned_pairs("minilm")] == [pair.id]

    def test_what_was_given_up_half_way_is_finished(self, analytics: AnalyticsPort) -> None:
        """The first step notes who is to be forgotten."""
        for _ in range(3):
            analytics.record_many(a_used_session(1000.0, principal=ANN)[1])
        next(analytics.erase(ErasureRequest(whose=ErasureScope.PRINCIPAL, key=ANN, at=2000.0)))
        assert analytics.count_erasures() > 0.0
        summed(analytics.finish_erasures())
        assert known_sessions(analytics) == set()

    def test_nobody_is_forgotten_at_first(self, analytics: AnalyticsPort) -> None:
        """Zero says so."""
        assert analytics.count_erasures() == 0.0
        assert summed(analytics.finish_erasures()) == RemovedCounts()

    def test_everything_is_handed_out_oldest_first_in_parts(self, analytics: AnalyticsPort) -> None:
        """Equal times are no obstacle; each record comes once."""
        sessions = [a_session(started_at=start) for start in (3.0, 1.0, 2.0, 2.0, 2.0)]
        analytics.record_many(sessions)
        assert analytics.count_rows(RecordKind.SESSIONS) == 5
        parts = list(analytics.export(RecordKind.SESSIONS, at_once=2))
        assert [len(part) for part in parts] == [2, 2, 1]
        rows = [row for part in parts for row in part]
        assert [row["started_at"] for row in rows] == [1.0, 2.0, 2.0, 2.0, 3.0]
        assert {row["id"] for row in rows} == {str(each.id) for each in sessions}
        assert (
            analytics.count_rows(RecordKind.SESSIONS, since=2.0)
            == len(exported(analytics, RecordKind.SESSIONS, 2.0))
            == 4
        )

    def test_a_session_is_handed_out_with_all_that_is_stored_of_it(self, analytics: AnalyticsPort) -> None:
        """In plain values."""
        session = a_session(client=ClientInfo(name="cursor", version="2"), client_id=ANN, tools_available=("b", "a"))
        session.keys["threadId"] = "hash"
        analytics.record_many([session])
        assert exported(analytics, RecordKind.SESSIONS) == [
            {
                "id": str(session.id),
                "started_at": 1000.0,
                "ended_at": None,
                "era": "handshake",
                "transport": "stdio",
                "method": "process",
                "confidence": "connection",
                "client_name": "cursor",
                "client_version": "2",
                "client_id": ANN,
                "principal": "",
                "project": "",
                "protocol_version": "",
                "keys": {"threadId": "hash"},
                "metadata": {},
                "tools_available": ["b", "a"],
            }
        ]

    def test_what_happened_in_a_session_is_handed_out(self, analytics: AnalyticsPort) -> None:
        """Calls as they were, exposures with the names shown and hidden."""
        session = a_session()
        call = an_invocation(session, "read", arguments_hash=ANN)
        shown = an_exposure(session, "b", "a", hidden=("z", "c"), mode="enforce", tokens_shown=7)
        analytics.record_many([call, shown])
        [told] = exported(analytics, RecordKind.INVOCATIONS)
        assert told == {
            "id": str(call.id),
            "session_id": str(session.id),
            "tool": "read",
            "upstream": "github",
            "timestamp": 1001.0,
            "duration_ms": 1.5,
            "success": True,
            "sequence_number": 1,
            "arguments_hash": ANN,
            "arguments": None,
            "error_kind": None,
            "error_code": None,
            "found": "named",
        }
        [told] = exported(analytics, RecordKind.EXPOSURES)
        assert (told["id"], told["shown"], told["hidden"]) == (str(shown.id), ["b", "a"], ["c", "z"])
        assert (told["mode"], told["tokens_shown"], told["session_id"]) == ("enforce", 7, str(session.id))
        assert "available" not in told

    def test_what_was_learned_and_decided_is_handed_out(self, analytics: AnalyticsPort) -> None:
        """Vectors as numbers, lists of tools as lists."""
        records = a_used_session(1000.0)[1]
        pair, override, warm_set = a_learned_pair(terms=(1, 2)), an_override(), a_warm_set("b", "a")
        analytics.record_many([*records, pair])
        analytics.put_override(override)
        analytics.put_warm_set(warm_set, None)
        analytics.refresh_cooccurrences(5000.0)
        [told] = exported(analytics, RecordKind.LEARNED_PAIRS)
        assert told["id"] == str(pair.id)
        assert told["vector"] == pytest.approx([0.6, 0.8])
        assert (told["dimensions"], told["terms"], told["updated_at"]) == (2, [1, 2], 1000.0)
        [told] = exported(analytics, RecordKind.OVERRIDES)
        assert (told["id"], told["kind"], told["expires_at"]) == (str(override.id), "include", None)
        [told] = exported(analytics, RecordKind.WARM_SETS)
        assert (told["client"], told["project"], told["predictor"]) == ("cursor", "q" * 32, "hybrid")
        assert (told["evidence"], told["probabilities"]) == (3, {"a": 0.5, "b": 0.5})
        [told] = exported(analytics, RecordKind.COOCCURRENCES)
        assert (told["tool_a"], told["tool_b"], told["count"]) == ("read", "write", 1)

    def test_a_store_that_is_empty_hands_out_nothing(self, analytics: AnalyticsPort) -> None:
        """Of any kind."""
        assert [exported(analytics, kind) for kind in RecordKind] == [[]] * len(RecordKind)
        assert {analytics.count_rows(kind) for kind in RecordKind} == {0}

    @pytest.mark.parametrize("whole", [False, True])
    def test_a_store_that_was_compacted_holds_what_it_held(
        self, analytics: AnalyticsPort, used: tuple[Session, Session], whole: bool
    ) -> None:
        """And is written to as before."""
        list(analytics.compact(whole=whole))
        assert analytics.size_bytes() >= 0
        assert len(known_sessions(analytics)) == 2
        analytics.record_many(a_used_session(1.0)[1])
        assert len(known_sessions(analytics)) == 3

    def test_only_the_latest_sessions_count_for_cooccurrence(self, analytics: AnalyticsPort) -> None:
        """They are told by their ids."""
        for tools in (("a", "b"), ("c", "d"), ("c", "d")):
            session = a_session()
            analytics.record_many([session, *(an_invocation(session, tool) for tool in tools)])
        assert analytics.refresh_cooccurrences(1.0, most_sessions=2) == 1
        assert [pair.count for pair in analytics.get_cooccurrences(["a", "c"])] == [2]
        assert analytics.refresh_cooccurrences(2.0) == 2

    def test_it_is_known_when_cooccurrence_was_refreshed_last(
        self, analytics: AnalyticsPort, used: tuple[Session, Session]
    ) -> None:
        """Whether anything changed or not."""
        assert analytics.get_refresh_time() == 0.0
        for now in (50.0, 60.0):
            assert analytics.refresh_cooccurrences(now) == 1
            assert analytics.get_refresh_time() == now
