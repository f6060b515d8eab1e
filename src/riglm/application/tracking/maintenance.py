"""Maintenance: derived data is recomputed and old records are deleted, on a separate thread."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from riglm.domain.retention import DAY_SECONDS, ErasureRequest, Expiry, RemovedCounts
from riglm.ports.analytics import AnalyticsPort

_MANY: Final = 10_000  # deleted rows from which on space is returned
_CLOCKS_APART: Final = 60.0  # seconds by which the clocks of machines may differ; a repeated callback does no harm
_RESERVE: Final = 0.2  # the share of the store that stays empty for new records
_DOUBT_SECONDS: Final = DAY_SECONDS  # of this process, after which a clock that jumped is believed

_MIN_PAUSE_SECONDS: Final = 0.02
_PAUSES: Final = 2.0  # times the duration of the step before: others have the store two thirds of the time

_log: Final = logging.getLogger("riglm.maintenance")
_Step = TypeVar("_Step")


def at_a_pace(steps: Iterator[_Step], wait: Callable[[float], object]) -> Iterator[_Step]:
    """Yield the steps of long work, each followed by a pause in which others have the store.

    `wait` is called with the pause in seconds; if it returns True, the rest is given up.
    """
    while True:
        began = time.monotonic()
        try:
            step = next(steps)
        except StopIteration:
            return
        pause = max(_MIN_PAUSE_SECONDS, _PAUSES * (time.monotonic() - began))
        yield step
        if wait(pause):
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSchedule:
    """Intervals of maintenance, in seconds.

    `delay` leaves the start to the client; then co-occurrence is refreshed at every `interval` that stored new records,
    and what is too old is purged every `purge`. Where another process is at it, this one tries again after `retry`.
    Erasures are looked up every `watch`.
    """

    delay: float = 10.0
    interval: float = 600.0
    purge: float = 3600.0
    retry: float = 5.0
    watch: float = 15.0


class Maintenance:
    """Refreshes co-occurrence, bounds what was learned, ends sessions left open, removes what is too old or forgotten.

    One process at a time does this for a store: the one that holds its lease. A session of a killed process has no end:
    after `idle_gap` seconds without a record, its last record counts as its end. `stored` returns the number of records
    that this process stored; `expiry` returns what is too old at a time. This thread opens the store for each round,
    and closes it again.

    The age of records is measured at a reliable time, see `MaintenancePort.get_reliable_time`. A clock that this
    process has seen to advance for a day is reliable as well.
    """

    def __init__(
        self,
        open_store: Callable[[], AnalyticsPort],
        stored: Callable[[], int],
        *,
        expiry: Callable[[float], Expiry] = lambda now: Expiry(now=now),
        schedule: MaintenanceSchedule | None = None,
        most_pairs: int = 20_000,
        idle_gap: float = 1800.0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_store = open_store
        self._stored = stored
        self._expiry = expiry
        self._schedule = schedule or MaintenanceSchedule()
        self._most_pairs = most_pairs
        self._idle_gap = idle_gap
        self._clock = clock
        self._monotonic = monotonic
        self._doubted_at: float | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="riglm-maintenance", daemon=True)
        self._seen = -1
        self._purged_at = float("-inf")
        self._started_at = clock()
        self._since = self._started_at - _CLOCKS_APART
        self._heard = 0.0
        self._callbacks: list[Callable[[Sequence[ErasureRequest]], None]] = []

    def keep(self, expiry: Callable[[float], Expiry]) -> None:
        """From the next purge on, remove what is too old by another measure; on any thread."""
        self._expiry = expiry
        self._purged_at = float("-inf")

    def end_idle_after(self, seconds: float) -> None:
        """From the next round on, take a session for ended after another silence; on any thread."""
        self._idle_gap = seconds

    def on_erased(self, callback: Callable[[Sequence[ErasureRequest]], None]) -> None:
        """Register a callback for erasures, with all sessions erased since the start; it is called on this thread."""
        self._callbacks.append(callback)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self, timeout: float = 0.25) -> None:
        """Stop; wait at most `timeout` seconds for a round that is under way. Its end is not needed for anything."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run_once(self) -> bool:
        """Do what is due now; False when another process is at it. Failures are logged; the next round tries again."""
        stored, now = self._stored(), self._clock()
        has_news, is_purge_due = stored != self._seen, now - self._purged_at >= self._schedule.purge
        if not has_news and not is_purge_due:
            return True
        try:
            with self._open_store() as store, store.maintenance_lease() as mine:
                if not mine:
                    return False
                reliable = self._reliable_time(store)
                if has_news:
                    self._refresh(store, reliable)
                    self._seen = stored
                if is_purge_due:
                    self._purge(store, reliable)
                    self._purged_at = now
        except Exception:  # noqa: BLE001  # nothing here may end the thread
            _log.warning("the store could not be looked after", exc_info=True)
        return True

    def watch(self) -> None:
        """Call the callbacks if something was erased since the last time."""
        if not self._callbacks:
            return
        try:
            with self._open_store() as store:
                heard = store.count_erasures(self._since)
                sessions = store.list_erased_sessions(self._since) if heard != self._heard else ()
        except Exception:  # noqa: BLE001  # nothing here may end the thread
            _log.debug("the store could not be asked who was forgotten", exc_info=True)
            return
        if heard != self._heard:
            self._heard = heard
            for callback in self._callbacks:
                callback(sessions)

    def _reliable_time(self, store: AnalyticsPort) -> float:
        """Return the time by which records are old: that of the clock, unless it is far ahead of what is stored."""
        now, seen = self._clock(), self._monotonic()
        has_advanced = self._doubted_at is not None and seen - self._doubted_at >= _DOUBT_SECONDS
        reliable = now if has_advanced else store.get_reliable_time(now, self._started_at)
        store.note_time(reliable, now)
        if reliable == now:
            self._doubted_at = None
        elif self._doubted_at is None:
            self._doubted_at = seen
            _log.warning(
                "clock: it is %.0f days ahead of the records of earlier days and of the last purge; age is measured at "
                "the later of the two until the clock has advanced for a day — fix: set the clock if it is wrong",
                (now - reliable) / DAY_SECONDS,
            )
        return reliable

    def _refresh(self, store: AnalyticsPort, reliable: float) -> None:
        self._prune(store)
        now = self._clock()
        ended = store.end_idle_sessions(reliable - self._idle_gap)
        if -_CLOCKS_APART <= now - store.get_refresh_time() < self._schedule.interval:
            return  # another process did it
        pairs = store.refresh_cooccurrences(now)
        _log.debug("co-occurrence refreshed: %d pairs; sessions left open and now ended: %d", pairs, ended)

    def _prune(self, store: AnalyticsPort) -> None:
        try:
            forgotten = sum(at_a_pace(store.prune_learned_pairs(self._most_pairs), self._ending.wait))
        except Exception:  # noqa: BLE001  # what was learned must not hold up what was recorded
            _log.warning("learned pairs could not be pruned", exc_info=True)
        else:
            _log.debug("learned pairs pruned: %d", forgotten)

    def _purge(self, store: AnalyticsPort, reliable: float) -> None:
        forgotten = self._removed(store.finish_erasures())
        if forgotten.total:
            store.refresh_cooccurrences(self._clock())
        purged = self._removed(store.purge(self._expiry(reliable)))
        for what, removed in (("forgotten", forgotten), ("too old", purged)):
            if removed.total:
                _log.info("removed what was %s: %s", what, removed)
        if (forgotten + purged).total >= _MANY:
            for _ in at_a_pace(store.compact(reserve=_RESERVE), self._ending.wait):
                pass

    def _removed(self, steps: Iterator[RemovedCounts]) -> RemovedCounts:
        return sum(at_a_pace(steps, self._ending.wait), RemovedCounts())

    def _run(self) -> None:
        pause = self._schedule.delay
        while not self._paused(pause):
            pause = self._schedule.interval if self.run_once() else self._schedule.retry

    def _paused(self, seconds: float) -> bool:
        """Wait, checking for erasures from time to time; return True at the end."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._ending.wait(min(left, self._schedule.watch)):
                return True
            self.watch()
        return self._ending.is_set()
