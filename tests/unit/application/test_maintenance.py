"""Maintenance: refreshed when there is something new, and never in anybody's way."""

import threading

import pytest

from riglm.adapters.analytics.memory import InMemoryAnalytics
from riglm.application.maintenance import Maintenance
from riglm.domain.errors import AnalyticsUnavailable
from riglm.testing.records import a_learned_pair, a_session, an_invocation

SOON = 10.0


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


@pytest.fixture
def store():
    return Counting()


def test_pairs_are_there_after_a_refresh(store):
    session = a_session()
    store.record_many([an_invocation(session, "a"), an_invocation(session, "b")])
    Maintenance(lambda: store, lambda: 2, clock=lambda: 50.0).refresh()
    assert [pair.last_updated for pair in store.get_cooccurrences(["a"])] == [50.0]


def test_learned_pairs_beyond_the_bound_are_forgotten(store):
    store.record_many([a_learned_pair(updated_at=float(at)) for at in range(3)])
    Maintenance(lambda: store, lambda: 3, most_pairs=2).refresh()
    assert [pair.updated_at for pair in store.list_learned_pairs("minilm")] == [2.0, 1.0]


def test_sessions_whose_process_was_killed_end_with_their_last_record(store):
    killed, alive = a_session(started_at=1000.0), a_session(started_at=2500.0)
    store.record_many([killed, alive, an_invocation(killed, "a", timestamp=1100.0)])
    Maintenance(lambda: store, lambda: 3, idle_gap=1000.0, clock=lambda: 3000.0).refresh()
    assert {each.session.id: each.session.ended_at for each in store.list_sessions()} == {
        killed.id: 1100.0,
        alive.id: None,
    }


def test_pairs_of_tools_are_refreshed_when_learned_pairs_cannot_be_pruned(caplog):
    class Stuck(Counting):
        def prune_learned_pairs(self, most):
            raise AnalyticsUnavailable("no such table")

    store = Stuck()
    Maintenance(lambda: store, lambda: 1, clock=lambda: 50.0).refresh()
    assert store.refreshes == [50.0]
    assert "learned pairs could not be pruned" in caplog.text


def test_nothing_is_refreshed_while_nothing_new_is_stored(store):
    stored = 0
    maintenance = Maintenance(lambda: store, lambda: stored)
    maintenance.refresh()
    maintenance.refresh()
    assert len(store.refreshes) == 1
    stored = 1
    maintenance.refresh()
    assert len(store.refreshes) == 2


def test_a_failed_refresh_is_logged_and_tried_again(store, caplog):
    failures = [AnalyticsUnavailable("away")]

    def open_store():
        if failures:
            raise failures.pop()
        return store

    maintenance = Maintenance(open_store, lambda: 0)
    maintenance.refresh()
    assert "could not be refreshed" in caplog.text
    maintenance.refresh()
    assert len(store.refreshes) == 1


def test_it_refreshes_after_the_delay_and_at_every_interval_on_its_own_thread(store):
    stored = iter(range(1000))
    with Maintenance(lambda: store, lambda: next(stored), delay=0.0, interval=0.001):
        for _ in range(3):
            assert store.refreshed.acquire(timeout=SOON)
    assert store.thread is not threading.current_thread()
    assert not store.thread.is_alive()


def test_closing_does_not_wait_for_the_delay(store):
    maintenance = Maintenance(lambda: store, lambda: 0, delay=3600.0)
    maintenance.start()
    maintenance.close(SOON)
    assert not maintenance._thread.is_alive()
    assert store.refreshes == []


def test_closing_what_never_started_is_allowed(store):
    Maintenance(lambda: store, lambda: 0).close()
