"""Maintenance: done when there is something to do, by one at a time, and never in anybody's way."""

import threading
from contextlib import contextmanager

import pytest

from riglm.application.tracking.maintenance import Maintenance, MaintenanceSchedule
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.retention import ErasureRequest, ErasureScope, Expiry
from tests.records import a_learned_pair, a_session, an_invocation, an_override
from tests.stores.memory import InMemoryAnalytics
from tests.waiting import WAIT_SECONDS

SOON = WAIT_SECONDS
NOW = 10_000.0


class Counting(InMemoryAnalytics):
    """Counts its refreshes and lets others wait for them."""

    def __init__(self):
        super().__init__()
        self.refreshes = []
        self.refreshed = threading.Semaphore(0)
        self.thread = None

    def refresh_cooccurrences(self, now):
        self.thread = threading.current_thread()
        self.refreshes.append(now)
        pairs = super().refresh_cooccurrences(now)
        self.refreshed.release()
        return pairs


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self, now=NOW):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def store():
    return Counting()


def of_all_before(before):
    return lambda now: Expiry.of_all(before, now)


def an_old_session(store, calls=2):
    session = a_session(started_at=1000.0, ended_at=1100.0)
    store.record_many([session, *(an_invocation(session, "read") for _ in range(calls))])
    return session


def test_pairs_of_tools_are_refreshed_when_learned_pairs_cannot_be_pruned(caplog):
    class Stuck(Counting):
        def prune_learned_pairs(self, most):
            raise AnalyticsUnavailableError("no such table")

    store = Stuck()
    Maintenance(lambda: store, lambda: 1, clock=Clock()).run_once()
    assert store.refreshes == [NOW]
    assert "learned pairs could not be pruned" in caplog.text


def test_what_is_too_old_is_removed_and_told(store, caplog):
    caplog.set_level("INFO")
    an_old_session(store)
    Maintenance(lambda: store, lambda: 0, expiry=of_all_before(5000.0)).run_once()
    assert store.list_sessions() == []
    assert "removed what was too old: 1 session, 2 invocations" in caplog.text


def test_what_is_too_old_is_looked_for_now_and_then_although_nothing_new_is_stored(store):
    clock = Clock()
    maintenance = Maintenance(
        lambda: store, lambda: 0, expiry=of_all_before(5000.0), schedule=MaintenanceSchedule(purge=60.0), clock=clock
    )
    maintenance.run_once()
    an_old_session(store)
    clock.now += 59.0
    maintenance.run_once()
    assert len(store.list_sessions()) == 1
    clock.now += 1.0
    maintenance.run_once()
    assert store.list_sessions() == []


def test_forgetting_that_was_given_up_is_finished(store):
    an_old_session(store)
    next(store.erase(ErasureRequest(whose=ErasureScope.PRINCIPAL, key="", at=2000.0)))
    Maintenance(lambda: store, lambda: 0).run_once()
    assert store.list_sessions() == []


def test_a_process_that_found_another_at_it_tries_again_soon(store):
    an_old_session(store)
    schedule = MaintenanceSchedule(delay=0.0, retry=0.001, interval=3600.0)
    with store.maintenance_lease():
        tried = threading.Event()

        class Watched(Counting):
            @contextmanager
            def maintenance_lease(self):
                with store.maintenance_lease() as mine:
                    tried.set()
                    yield mine

        watched = Watched()
        maintenance = Maintenance(lambda: watched, lambda: 1, schedule=schedule)
        maintenance.start()
        assert tried.wait(SOON)
        assert watched.refreshes == []
    assert watched.refreshed.acquire(timeout=SOON)
    maintenance.close(SOON)


def watching(open_store, erasures):
    maintenance = Maintenance(open_store, lambda: 0, clock=Clock(5000.0))
    maintenance.on_erased(lambda sessions: erasures.append([each.key for each in sessions]))
    return maintenance


def test_each_erasure_is_reported_once_with_all_erased_sessions(store):
    erasures = []
    maintenance = watching(lambda: store, erasures)
    maintenance.watch()
    for whose, key in ((ErasureScope.PRINCIPAL, "p"), (ErasureScope.SESSION, "one"), (ErasureScope.SESSION, "other")):
        for _ in store.erase(ErasureRequest(whose=whose, key=key, at=6000.0)):
            pass
        maintenance.watch()
        maintenance.watch()
    assert erasures == [[], ["one"], ["one", "other"]]


def test_an_erasure_long_before_the_start_is_not_reported(store):
    next(store.erase(ErasureRequest(whose=ErasureScope.PRINCIPAL, key="p", at=4000.0)))
    erasures = []
    watching(lambda: store, erasures).watch()
    assert erasures == []


def test_a_failed_round_is_logged_and_tried_again(store, caplog):
    failures = [AnalyticsUnavailableError("away")]

    def open_store():
        if failures:
            raise failures.pop()
        return store

    maintenance = Maintenance(open_store, lambda: 0)
    maintenance.run_once()
    assert "could not be looked after" in caplog.text
    maintenance.run_once()
    assert len(store.refreshes) == 1


def test_it_refreshes_after_the_delay_and_at_every_interval_on_its_own_thread(store):
    stored = iter(range(1_000_000))
    told = threading.Semaphore(0)
    schedule = MaintenanceSchedule(delay=0.0, interval=0.001, watch=0.0005)
    maintenance = Maintenance(lambda: store, lambda: next(stored), schedule=schedule)
    maintenance.on_erased(lambda _: told.release())
    with maintenance:
        for _ in range(3):
            assert store.refreshed.acquire(timeout=SOON)
        next(store.erase(ErasureRequest(whose=ErasureScope.PRINCIPAL, key="p", at=maintenance._clock())))
        assert told.acquire(timeout=SOON)
    assert store.thread is not threading.current_thread()
    maintenance.close(SOON)
    assert not store.thread.is_alive()


def test_closing_gives_a_purge_up(store):
    an_old_session(store, calls=100)
    begun = threading.Event()

    class Slow(Counting):
        def purge(self, expiry, at_once=1):
            for removed in store.purge(expiry, at_once=1):
                yield removed
                begun.set()

    maintenance = Maintenance(Slow, lambda: 1, expiry=of_all_before(5000.0), schedule=MaintenanceSchedule(delay=0.0))
    maintenance.start()
    assert begun.wait(SOON)
    maintenance.close(SOON)
    assert not maintenance._thread.is_alive()


DAY = 86_400.0
REAL = 1_000 * DAY


def kept_by(store, clock, monotonic=lambda: 0.0):
    """Maintenance that keeps records for a week, and what it does at the times of the clocks."""
    return Maintenance(
        lambda: store, lambda: 0, expiry=lambda now: Expiry.of_all(now - 7 * DAY, now), clock=clock, monotonic=monotonic
    )


def record_call_at(store, at):
    session = a_session(started_at=at, ended_at=at + 1.0)
    store.record_many([session, an_invocation(session, "read", timestamp=at)])
    return session.id


def stored_sessions(store):
    return {each.session.id for each in store.list_sessions()}


@pytest.mark.parametrize("days", [3.0, 400.0])
def test_a_clock_ahead_deletes_nothing_at_any_number_of_starts(store, caplog, days):
    kept = record_call_at(store, REAL - 3 * DAY), record_call_at(store, REAL - 60.0)
    for start in range(3):
        wrong = Clock(REAL + days * DAY + 60.0 * start)
        maintenance = kept_by(store, wrong)
        record_call_at(store, wrong.now + 1.0)  # by this process itself
        for _ in range(3):
            wrong.now += 3_600.0
            maintenance.run_once()
    assert stored_sessions(store) >= set(kept)
    assert caplog.text.count(f"clock: it is {days:.0f} days ahead of the records") == 3
    kept_by(store, Clock(REAL)).run_once()
    assert stored_sessions(store) >= set(kept)


def test_a_clock_ahead_ends_no_session_and_keeps_what_expires_and_was_learned(store):
    session = a_session(started_at=REAL)
    store.record_many([session, an_invocation(session, "read", timestamp=REAL), a_learned_pair(updated_at=REAL)])
    override = an_override(created_at=REAL, expires_at=REAL + DAY)
    store.put_override(override)
    Maintenance(
        lambda: store, lambda: 1, expiry=lambda now: Expiry.of_all(now - 7 * DAY, now), clock=Clock(REAL + 400 * DAY)
    ).run_once()
    assert [each.session.ended_at for each in store.list_sessions()] == [None]
    assert len(store.list_learned_pairs("minilm")) == 1
    assert store.list_overrides() == [override]


def test_a_clock_ahead_is_believed_after_a_day_of_this_process(store):
    record_call_at(store, REAL)
    clock, monotonic = Clock(REAL + 400 * DAY), Clock(0.0)
    maintenance = kept_by(store, clock, monotonic)
    for hour in range(0, 30, 6):
        assert len(stored_sessions(store)) == 1, hour
        clock.now += 6 * 3_600.0
        maintenance.run_once()
        monotonic.now += 6 * 3_600.0
    assert stored_sessions(store) == set()


def test_after_a_long_pause_records_of_another_day_show_that_the_clock_advances(store):
    old = record_call_at(store, REAL)
    kept_by(store, Clock(REAL + 60.0)).run_once()
    back = REAL + 400 * DAY
    kept_by(store, Clock(back)).run_once()
    new = record_call_at(store, back + 60.0)
    kept_by(store, Clock(back + 3_600.0)).run_once()
    assert stored_sessions(store) == {old, new}
    kept_by(store, Clock(back + 1.5 * DAY)).run_once()
    assert stored_sessions(store) == {new}


@pytest.mark.parametrize("days", [3.0, 30.0])
def test_what_is_too_old_goes_when_riglm_runs_shortly_at_long_intervals(store, days):
    runs = [REAL + number * days * DAY for number in range(6)]
    for run in runs:
        maintenance = kept_by(store, Clock(run))
        record_call_at(store, run)
        maintenance.run_once()
    kept = [each.session.started_at for each in store.list_sessions()]
    assert sorted(kept) == [run for run in runs if run >= runs[-2] - 7 * DAY]
