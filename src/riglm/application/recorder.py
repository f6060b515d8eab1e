"""The recorder: stores records from one thread of its own, so that no call ever waits for storage."""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from riglm.application.record_queue import Item, QueueLimits, RecordCounts, RecordQueue
from riglm.domain.errors import AnalyticsUnavailable
from riglm.ports.analytics import AnalyticsPort, Record

_log: Final = logging.getLogger("riglm.recorder")
_QUIET_SECONDS: Final = 60.0
_LAST_WORDS_SECONDS: Final = 0.25
_STANDSTILL_SECONDS: Final = 1.0
_GLANCE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How many seconds to wait for a store that is away: twice as long each time, with jitter."""

    first: float = 1.0
    longest: float = 30.0

    def delay(self, failures: int) -> float:
        """The pause after so many failures in a row, at least one."""
        full = min(self.longest, self.first * 2.0 ** min(failures - 1, 32))
        return full * random.uniform(0.5, 1.0)  # noqa: S311  # jitter is no secret


class Recorder:
    """Takes records at once and stores them later: in order, in batches, each at least once.

    The store is opened by the writing thread and opened anew after it failed; meanwhile records wait. What finds the
    queue full is dropped and counted. For `head_start` seconds, or until `begin`, the writer does nothing: what it
    imports to open the store would slow the first answers. At the end a store that works is given `close_timeout`
    seconds, one that is away or does not get on much less. Where a spool on disk is wanted, it goes between the queue
    and the store.
    """

    def __init__(
        self,
        open_store: Callable[[], AnalyticsPort],
        *,
        limits: QueueLimits | None = None,
        backoff: Backoff | None = None,
        head_start: float = 0.5,
        close_timeout: float = 5.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_store = open_store
        self._queue = RecordQueue(limits or QueueLimits())
        self._backoff = backoff or Backoff()
        self._head_start = head_start
        self._close_timeout = close_timeout
        self._monotonic = monotonic
        self._thread = threading.Thread(target=self._run, name="riglm-recorder", daemon=True)
        self._store: AnalyticsPort | None = None
        self._failures = 0
        self._lost = 0
        self._at_once = False
        self._tried = threading.Event()
        self._quiet_until: dict[str, float] = {}

    def start(self) -> None:
        """Begin to store what is put; what was put before waits in the queue."""
        self._thread.start()

    def open_at_once(self) -> None:
        """Open the store at the start, with no head start and before there is a record; called before `start`."""
        self._at_once = True

    def opened(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for a store that is to be opened at once; whether it is open."""
        return self._at_once and self._tried.wait(timeout) and self._store is not None

    def begin(self) -> None:
        """End the head start: the client has its first list."""
        self._queue.begin()

    def put(self, item: Item, size: int = 512) -> None:
        """Take a record of about `size` bytes. Does no I/O, never waits for the store, and never raises."""
        self._queue.put(item, size)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all that was put so far was stored or dropped, at most `timeout` seconds; whether it was."""
        return self._queue.flush(timeout)

    def counts(self) -> RecordCounts:
        """What became of all records, at one instant."""
        return self._queue.counts()

    def close(self, timeout: float | None = None) -> RecordCounts:
        """Take nothing more, store what is queued for at most `timeout` seconds, and drop the rest.

        A store that failed, or that was open and stored nothing for a second, is not waited for any longer.
        """
        self._queue.close()
        if self._thread.ident is not None:
            self._join(self._close_timeout if timeout is None else timeout)
        self._queue.abandon()
        if self._thread.ident is not None:
            self._thread.join(_LAST_WORDS_SECONDS)
        counts = self.counts()
        lost = counts.reasons["closed"] + counts.queued
        if lost:
            _log.warning("%d records could not be stored before the end and are lost", lost)
        return counts

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _join(self, timeout: float) -> None:
        """Wait for the writer as long as it gets on: opening a store is getting on, failing to is not."""
        until = time.monotonic() + timeout
        stored, stands_since = -1, 0.0
        while self._thread.is_alive() and (now := time.monotonic()) < until:
            if (already := self.counts().stored) != stored:
                stored, stands_since = already, now
            if now - stands_since >= _STANDSTILL_SECONDS and (self._failures or self._store is not None):
                return
            self._thread.join(min(_GLANCE_SECONDS, until - now))

    def _run(self) -> None:
        if self._at_once:
            self._try_to_open()
        else:
            self._queue.rest(self._head_start)
        while batch := self._queue.take():
            self._record(self._made(batch))
            self._tell_losses()
        self._let_go()

    def _made(self, batch: list[Item]) -> list[Record]:
        records: list[Record] = []
        for item in batch:
            try:
                records.append(item if isinstance(item, Record) else item.record())
            except Exception:  # noqa: BLE001  # one bad record must not stop the writer
                self._refused("a record could not be made")
        return records

    def _record(self, records: list[Record]) -> None:
        """Store the records, waiting for a store that is away, and narrowing down to those that it refuses."""
        parts = [records] if records else []
        while parts:
            part = parts.pop()
            try:
                self._opened().record_many(part)
            except AnalyticsUnavailable as error:
                parts.append(part)
                if not self._wait_for_store(error):
                    self._queue.give_up()
                    return
            except Exception:  # noqa: BLE001  # whatever a store raises, the rest is still to be stored
                if len(part) == 1:
                    self._refused("the store refuses a record")
                else:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
            else:
                self._back()
                self._queue.settle(stored=len(part))

    def _opened(self) -> AnalyticsPort:
        if self._store is None:
            try:
                store = self._open_store()
                self._store = store.__enter__()
            except AnalyticsUnavailable:
                raise
            except Exception as error:
                raise AnalyticsUnavailable(f"the analytics store cannot be opened: {error}") from error
        return self._store

    def _try_to_open(self) -> None:
        try:
            self._opened()
        except AnalyticsUnavailable as error:
            self._complain("records wait, the store is away: %s", error)
        self._tried.set()

    def _wait_for_store(self, error: AnalyticsUnavailable) -> bool:
        """Whether the store is to be tried again, after a pause."""
        self._let_go()
        self._failures += 1
        self._complain("records wait, the store is away: %s", error)
        self._tell_losses()
        return self._queue.pause(self._backoff.delay(self._failures))

    def _back(self) -> None:
        if self._failures:
            _log.info("the store is back after %d failures", self._failures)
            self._failures = 0

    def _let_go(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                store.__exit__(None, None, None)
            except Exception:  # noqa: BLE001  # it is given up either way
                _log.exception("the store could not be closed")

    def _refused(self, what: str) -> None:
        self._queue.settle(refused=1)
        self._complain("%s; it is dropped", what, traceback=True)

    def _tell_losses(self) -> None:
        lost = self._queue.counts().reasons["full"]
        if lost > self._lost and self._complain("the queue is full; %d records were dropped so far", lost):
            self._lost = lost

    def _complain(self, message: str, *details: object, traceback: bool = False) -> bool:
        """Log a warning unless the same one was logged within the last minute; whether it was logged."""
        now = self._monotonic()
        if now < self._quiet_until.get(message, now):
            return False
        self._quiet_until[message] = now + _QUIET_SECONDS
        _log.warning(message, *details, exc_info=traceback)
        return True
