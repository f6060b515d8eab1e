"""The recorder: stores records from separate threads, so that no call waits for storage."""

import logging
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, Self

from riglm.application.failing_open import RateLimitedLogger
from riglm.application.tracking.spool_buffer import SpoolBuffer
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ToolInvocation
from riglm.domain.session import Session
from riglm.ports.analytics import Record, RecordStorePort, SessionClosed
from riglm.ports.spool import SpooledRecords, SpoolPort
from riglm.ports.telemetry import RecordCounts

QueueItem = Record | Callable[[], Record]
"""A record, or what makes it later, once, on a thread of the recorder, so that the call path need not make it."""

_log: Final = logging.getLogger("riglm.recorder")
_BREATH_SECONDS: Final = 0.02  # an answer that was just given is on its way out
_MIN_WAIT_SECONDS: Final = 0.005
_FAULT_SECONDS: Final = 0.5  # before what waits in the spool is looked at again, which could not be read
_DRAIN_REST_SHARE: Final = 0.25  # of the time of the last batch, in which others have the store
_MAX_DRAIN_REST_SECONDS: Final = 0.12  # a waiting SQLite connection polls every 100 ms
_LAST_BATCH_SECONDS: Final = 0.5
_LAST_DRAIN_SECONDS: Final = 1.0  # or the spools of ended processes stay while all processes are short
_LAST_SYNC_SECONDS: Final = 5.0  # of a slow disk, for the sync that is under way when the end begins
_CLOSE_SECONDS: Final = 0.25
_ARCHIVED: Final = Session | SessionClosed | ToolInvocation | Exposure
_DROPPED: Final = ("full", "refused", "damaged", "closed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Seconds to wait for an unavailable store: twice as many each time, with jitter."""

    first: float = 1.0
    longest: float = 30.0

    def delay(self, failures: int) -> float:
        """Return the pause after this many failures in a row, at least one."""
        full = min(self.longest, self.first * 2.0 ** min(failures - 1, 32))
        return full * random.uniform(0.5, 1.0)  # noqa: S311  # jitter is no secret


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """How much may wait. A batch is closed by its number of records or by its age, in seconds.

    Past the share `high_water` of either limit, records go to the spool although the store works.
    """

    records: int = 10_000
    size_bytes: int = 32 << 20
    batch_records: int = 500
    batch_seconds: float = 0.05
    high_water: float = 0.75


@dataclass(slots=True, eq=False, kw_only=True)
class Batch:
    """Records on their way from the queue, or from the spool, to the store.

    `items` are what `records` are still to be made of. `done` counts the settled ones at the beginning of `records`. At
    most `at_once` are stored in one transaction: less than all while the store refuses one of them. A batch that was
    revoked is settled elsewhere. `since` is when the store got it.
    """

    items: Sequence[QueueItem] = ()
    records: list[Record] = field(default_factory=list)
    from_spool: bool = False
    is_revoked: bool = False
    done: int = 0
    at_once: int = sys.maxsize
    since: float = 0.0

    @property
    def rest(self) -> list[Record]:
        """The records that are not settled."""
        return self.records[self.done :]


class Recorder:
    """Takes records at once and stores them later: in order, in batches, each at least once.

    One thread stores what is queued. If the store is unavailable, takes over `timeout_seconds` seconds for a batch, or
    is slower than records come, another thread moves the batch and all that follow it to the spool, and the first one
    stores them from there in the same order, after what ended processes left. Without a spool records wait in the
    queue. What finds the queue full is dropped and counted.

    For `head_start` seconds, or until `begin`, nothing is done: what is imported to open the store would slow the first
    answers. At the end the store gets `close_timeout` seconds; the rest goes to the spool.
    """

    def __init__(
        self,
        open_store: Callable[[], RecordStorePort],
        *,
        open_spool: Callable[[], SpoolPort] | None = None,
        limits: QueueLimits | None = None,
        backoff: Backoff | None = None,
        timeout_seconds: float = 1.0,
        head_start: float = 0.5,
        close_timeout: float = 5.0,
        archive: "Recorder | None" = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`archive` gets sessions, invocations and exposures in addition."""
        self._open_store = open_store
        self._limits = limits = limits or QueueLimits()
        self._high_records = min(limits.records - 1, int(limits.records * limits.high_water))
        self._high_bytes = int(limits.size_bytes * limits.high_water)
        self._backoff = backoff or Backoff()
        self._timeout_seconds = timeout_seconds
        self._head_start = head_start
        self._close_timeout = close_timeout
        self._archive = archive
        self._log = RateLimitedLogger(_log, monotonic)
        self._spool = SpoolBuffer(open_spool, self._count_read, self._log)
        self._opens_at_once = False
        self._tried = threading.Event()
        self._store: RecordStorePort | None = None
        self._storing = threading.Thread(target=self._run_storing, name="riglm-store", daemon=True)
        self._spooling = threading.Thread(target=self._run_spooling, name="riglm-spool", daemon=True)
        # The lock is of all that follows; no thread does I/O or logs while it holds it.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        """There is a reason for the storing thread to look again."""
        self._watched = threading.Condition(self._lock)
        """There is one for the spooling thread."""
        self._settled = threading.Condition(self._lock)
        self._items: deque[tuple[QueueItem, int]] = deque()
        self._bytes = 0
        self._in_hand = 0
        self._accepted = self._recovered = self._acknowledged = 0
        self._outcomes = {"stored": 0, "spooled": 0, **dict.fromkeys(_DROPPED, 0)}
        self._is_idle = False
        """No thread waits for a time: the next record wakes them."""
        self._due_at = 0.0
        self._flushes = 0
        self._begun = self._is_closed = self._is_abandoned = False
        self._given: Batch | None = None
        """What the storing thread has: records from the queue that are nowhere else, or from the spool."""
        self._pending: deque[Batch] = deque()
        """What was taken from the queue, and neither the store nor the spool took."""
        self._is_moving = False
        """The spooling thread has a batch."""
        self._is_slow = False
        self._failures = 0
        self._has_given_up = False
        self._drained: Batch | None = None
        self._retry_at = self._drain_at = 0.0
        self._ends_at: float | None = None
        self._reported_losses = 0

    def start(self) -> None:
        """Begin to store what is put; what was put before waits in the queue."""
        if self._spool.exists:
            self._spooling.start()
        self._storing.start()

    def open_at_once(self) -> None:
        """Open the store at the start, with no head start and before there is a record; called before `start`."""
        self._opens_at_once = True

    def opened(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for a store that is opened at once; return True if it is open."""
        return self._opens_at_once and self._tried.wait(timeout) and self._store is not None

    def begin(self) -> None:
        """End the head start: the client has its first list."""
        with self._lock:
            self._begun = True
            self._wake()

    def put(self, item: QueueItem, size: int = 512) -> None:
        """Take a record of about `size` bytes. Does no I/O, never waits for the store, and never raises."""
        with self._lock:
            self._accepted += 1
            count = len(self._items) + self._in_hand
            if self._is_closed or count >= self._limits.records or self._bytes + size > self._limits.size_bytes:
                self._outcomes["closed" if self._is_closed else "full"] += 1
                return
            self._items.append((item, size))
            self._bytes += size
            if self._is_idle:
                self._is_idle = False
                self._due_at = time.monotonic() + self._limits.batch_seconds
                self._wake()
            elif (
                len(self._items) == self._limits.batch_records
                or count >= self._high_records
                or self._bytes > self._high_bytes
            ):
                self._wake()

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all that was put so far is stored, spooled or dropped, at most `timeout` seconds; whether it is.

        What is stored or spooled outlives this process, however that ends.
        """
        with self._lock:
            goal = self._acknowledged + self._in_hand + len(self._items)
            self._flushes += 1
            self._wake()
            try:
                return self._settled.wait_for(lambda: self._acknowledged >= goal, timeout)
            finally:
                self._flushes -= 1

    def counts(self) -> RecordCounts:
        """Return what became of all records, at one instant."""
        with self._lock:
            reasons = {reason: self._outcomes[reason] for reason in _DROPPED}
            return RecordCounts(
                accepted=self._accepted,
                stored=self._outcomes["stored"],
                queued=len(self._items) + self._in_hand,
                spooled=self._outcomes["spooled"],
                dropped=sum(reasons.values()),
                recovered=self._recovered,
                reasons=reasons,
                spool_bytes=self._spool.size_bytes,
            )

    @property
    def is_failing(self) -> bool:
        """True if the store was unavailable at the last attempt."""
        return self._failures > 0

    def close(self, timeout: float | None = None) -> RecordCounts:
        """Take nothing more, store what is queued for at most `timeout` seconds, and spool the rest, or drop it."""
        with self._lock:
            self._is_closed = True
            self._wake()
        if self._storing.ident is not None:
            self._storing.join(self._close_timeout if timeout is None else timeout)
        self._abandon()
        if self._spooling.ident is not None:
            self._spooling.join(_LAST_SYNC_SECONDS)
        else:
            self._finish()
        if self._storing.ident is not None:
            self._storing.join(_CLOSE_SECONDS)
        counts = self.counts()
        _log.info("recording ended", extra=asdict(counts))
        if counts.spooled:
            _log.info("%d records wait on disk for the next start", counts.spooled)
        if lost := counts.reasons["closed"] + counts.queued:
            _log.warning("%d records could not be stored before the end and are lost", lost)
        return counts

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The queue. The lock is held.

    def _wake(self) -> None:
        self._changed.notify_all()
        self._watched.notify_all()

    def _is_pressed(self) -> bool:
        """Return True if more is waiting or being stored than the high-water mark allows."""
        return len(self._items) + self._in_hand > self._high_records or self._bytes > self._high_bytes

    def _is_urgent(self) -> bool:
        return self._flushes > 0 or self._is_closed

    def _seconds_to_batch(self) -> float | None:
        """Return in how many seconds there is a batch to take, 0 if there is one; None if the next record wakes."""
        if self._pending or (self._items and (self._is_urgent() or len(self._items) >= self._limits.batch_records)):
            return 0.0
        if (left := self._due_at - time.monotonic()) > 0.0:
            return left
        self._is_idle = not self._items
        return None if self._is_idle else 0.0

    def _take(self) -> Batch:
        """Return the oldest batch."""
        if self._pending:
            return self._pending.popleft()
        taken = [self._items.popleft() for _ in range(min(len(self._items), self._limits.batch_records))]
        items, sizes = zip(*taken, strict=True) if taken else ((), ())
        self._in_hand += len(items)
        self._bytes -= sum(sizes)
        self._due_at = time.monotonic() + self._limits.batch_seconds
        return Batch(items=items)

    def _settle(self, batch: Batch, count: int, outcome: str) -> None:
        """Count the next records of a batch as stored, spooled or dropped."""
        batch.done += count
        self._outcomes[outcome] += count
        if batch.from_spool:
            self._outcomes["spooled"] -= count
            return
        self._in_hand -= count
        self._acknowledged += count
        if self._flushes:
            self._settled.notify_all()

    def _is_storing(self) -> bool:
        """Return True if the storing thread has records that are nowhere else."""
        return self._given is not None and not (self._given.from_spool or self._given.is_revoked)

    def _revoke(self) -> None:
        """Take the batch from the storing thread; its result there does not count any more."""
        if self._given is not None:
            if self._is_storing():
                self._pending.appendleft(Batch(records=self._given.rest))
            self._given.is_revoked = True

    # Both threads. The lock is not held from here on.

    def _make(self, batch: Batch) -> None:
        """Make the records of a batch; one that cannot be made is dropped."""
        made: list[Record] = []
        archive = self._archive
        for item in batch.items:
            try:
                record = item() if callable(item) else item
                if archive is not None and isinstance(record, _ARCHIVED):
                    archive.put(record)
            except Exception:  # noqa: BLE001  # one bad record must not stop the others
                with self._lock:
                    self._settle(Batch(), 1, "refused")
                self._log.warn("a record could not be made; it is dropped", traceback=True)
            else:
                made.append(record)
        if batch.items:
            with self._lock:
                batch.items, batch.records = (), made

    def _report_losses(self) -> None:
        lost = self._outcomes["full"]
        if lost > self._reported_losses and self._log.warn("the queue is full; %d records were dropped so far", lost):
            self._reported_losses = lost

    def _abandon(self) -> None:
        with self._lock:
            self._is_abandoned = True
            self._wake()

    # The storing thread.

    def _run_storing(self) -> None:
        if self._opens_at_once:
            self._give(Batch())
        else:
            with self._lock:
                self._changed.wait_for(lambda: self._begun or self._is_urgent(), self._head_start)
                if self._begun:
                    self._changed.wait_for(self._is_urgent, _BREATH_SECONDS)
        self._spool.open()
        with self._lock:
            self._wake()
        while (batch := self._next()) is not None:
            self._give(batch)
        self._close_store()
        self._abandon()

    def _next(self) -> Batch | None:
        """Wait for what is stored next, the oldest records of the spool or those of the queue; None at the end."""
        while True:
            self._report_losses()
            with self._lock:
                if self._is_over():
                    return None
                seconds, drains = self._seconds_to_next(), self._spool.has_more
                if seconds is None or seconds > 0.0:
                    self._changed.wait(seconds)
                    continue
                if not drains:
                    self._given = self._take()
                    self._given.since = time.monotonic()
                    return self._given
            if (batch := self._read_spool()) is not None:
                return batch

    def _is_over(self) -> bool:
        if self._is_abandoned or self._has_given_up:
            return True
        if not self._is_closed or self._pending or self._items or self._is_moving:
            return False
        if self._ends_at is None:
            self._ends_at = time.monotonic() + _LAST_DRAIN_SECONDS
        return self._failures > 0 or not self._spool.has_more or time.monotonic() >= self._ends_at

    def _seconds_to_next(self) -> float | None:
        """Return in how many seconds there is something to store, None if there will be a signal."""
        now = time.monotonic()
        if self._spool.has_more:
            return max(self._retry_at, self._drain_at) - now
        if self._is_moving or (self._must_spool() and not self._spool.retry_in()):
            return None
        seconds = self._seconds_to_batch()
        return self._retry_at - now if seconds == 0.0 and not self._is_closed else seconds

    def _must_spool(self) -> bool:
        """Return True if records go to the spool: the store does not take them, or must take others before them."""
        return self._failures > 0 or self._is_slow or self._spool.has_more

    def _read_spool(self) -> Batch | None:
        """Return the oldest batch of the spool, the same until it is removed."""
        if self._drained is None and (records := self._spool.next(self._limits.batch_records)):
            self._drained = Batch(records=records, from_spool=True)
        with self._lock:
            self._given = self._drained
            if self._given is None and self._spool.has_more:
                self._drain_at = time.monotonic() + _FAULT_SECONDS
        return self._drained

    def _give(self, batch: Batch) -> None:
        """Store a batch, and note the result; an empty one opens the store."""
        is_last_try, began = self._is_closed, time.monotonic()
        with self._lock:
            self._given, batch.since = batch, began
        self._make(batch)
        failure = self._store_batch(batch)
        seconds = time.monotonic() - began
        with self._lock:
            self._given, failures = None, self._failures
            self._failures = failures + 1 if failure else 0
            if failure is None:
                self._is_slow = seconds > self._timeout_seconds
            else:
                if batch.rest and not (batch.from_spool or batch.is_revoked):
                    self._pending.appendleft(batch)
                self._has_given_up = is_last_try
                self._retry_at = time.monotonic() + self._backoff.delay(self._failures)
            if self._must_spool():
                self._watched.notify_all()
        if failure is not None:
            self._log.warn("records wait because the store is unavailable: %s", failure)
            return
        if failures:
            _log.info("the store is back after %d failures", failures)
        if batch.from_spool and not batch.is_revoked:
            self._drained = None
            self._drain_at = time.monotonic() + min(_DRAIN_REST_SHARE * seconds, _MAX_DRAIN_REST_SECONDS)
            self._spool.remove()

    def _store_batch(self, batch: Batch) -> AnalyticsUnavailableError | None:
        """Store the rest of a batch, isolating refused records; return why the store is unavailable, or None."""
        try:
            if self._store is None:
                self._store = self._open_store().__enter__()
            while batch.rest and not batch.is_revoked:
                self._store_part(self._store, batch)
        except Exception as error:  # noqa: BLE001  # a store may raise anything when it is opened
            self._close_store()
            if isinstance(error, AnalyticsUnavailableError):
                return error
            return AnalyticsUnavailableError(f"the analytics store cannot be opened: {error}")
        finally:
            self._tried.set()
        return None

    def _store_part(self, store: RecordStorePort, batch: Batch) -> None:
        part = batch.rest[: batch.at_once]
        outcome = "stored"
        try:
            store.record_many(part)
        except AnalyticsUnavailableError:
            batch.at_once = max(1, len(part) // 2)  # a disk with little space may take less at once
            raise
        except Exception:  # noqa: BLE001  # a store may raise anything, and the rest must still be stored
            batch.at_once = max(1, len(part) // 2)
            if len(part) > 1:
                return
            outcome = "refused"
            self._log.warn("the store refuses a record; it is dropped", traceback=True)
        else:
            batch.at_once *= 2
        with self._lock:
            if not batch.is_revoked:
                self._settle(batch, len(part), outcome)

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                store.__exit__(None, None, None)
            except Exception:  # noqa: BLE001  # it is given up either way
                _log.exception("the store could not be closed")

    # The spooling thread.

    def _run_spooling(self) -> None:
        while True:
            self._report_losses()
            self._spool.sync_if_due()
            with self._lock:
                if self._is_abandoned:
                    break
                is_late = self._relieve()
                if (seconds := self._seconds_to_move()) != 0.0:
                    self._watched.wait(seconds)
                    continue
                self._is_moving, batch = True, self._take()
            if is_late and self._store is not None:
                self._log.warn("records go to the spool, the store is slow or hangs")
            is_moved = self._move(batch)
            with self._lock:
                self._is_moving = False
                if not is_moved:
                    self._pending.appendleft(batch)
                self._changed.notify_all()
        self._finish()

    def _relieve(self) -> bool:
        """Take the batch from a store that is too slow, or while the queue fills up; return True for the former.

        What follows it must not pass it. If the store takes it after all, it gets the same again, which changes
        nothing.
        """
        if self._given is None or self._given.items or not self._is_storing():
            return False
        is_late = time.monotonic() - self._given.since > self._timeout_seconds
        if not (is_late or (self._items and self._is_pressed())) or self._spool.retry_in():
            return False
        self._is_slow = True
        self._revoke()
        return is_late

    def _seconds_to_move(self) -> float | None:
        """Return in how many seconds there is something to move to the spool, or to look at the store again."""
        if self._given is not None and self._is_storing():
            left = self._given.since + self._timeout_seconds - time.monotonic()
            return max(left, self._spool.retry_in(), _MIN_WAIT_SECONDS)
        if not self._must_spool():
            return None if self._is_idle else self._timeout_seconds
        seconds = self._seconds_to_batch()
        if seconds == 0.0:
            seconds = self._spool.retry_in()
        sync = self._spool.sync_in()
        return seconds if sync is None or seconds == 0.0 else min(seconds or sync, max(sync, _MIN_WAIT_SECONDS))

    def _move(self, batch: Batch) -> bool:
        """Put a batch into the spool; return False if that does not take it now."""
        self._make(batch)

        def settle(refused: int) -> None:
            with self._lock:
                self._settle(batch, refused, "refused")
                self._settle(batch, len(batch.rest), "spooled")

        return not batch.rest or self._spool.append(batch.rest, settle)

    def _count_read(self, found: SpooledRecords) -> None:
        """Count records that were read from the spool: those of ended processes are new."""
        with self._lock:
            if not found.is_own:
                new = len(found.records) + found.damaged
                self._accepted += new
                self._recovered += new
                self._outcomes["spooled"] += new
            self._outcomes["spooled"] -= found.damaged
            self._outcomes["damaged"] += found.damaged

    def _finish(self) -> None:
        """Bring to the spool, or drop, what is left."""
        if self._given is not None and (not self._spool.exists or self._given.from_spool or self._given.items):
            self._storing.join(_LAST_BATCH_SECONDS)  # what the store takes from the spool now is not to stay there
        self._spool.hurry()
        with self._lock:
            self._revoke()
        while self._pending or self._items:
            with self._lock:
                batch = self._take()
            if not self._move(batch):
                with self._lock:
                    self._settle(batch, len(batch.rest), "closed")
        self._spool.close()
        self._report_losses()
