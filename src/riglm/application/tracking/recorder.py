"""The recorder: stores records from separate threads, so that no call waits for storage."""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Final, Self

from riglm.application.failing_open import RateLimitedLogger
from riglm.application.tracking.record_queue import Batch, QueueItem, QueueLimits, RecordQueue
from riglm.application.tracking.store_writer import SpoolBuffer, StoreWriter
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ToolInvocation
from riglm.domain.session import Session
from riglm.ports.analytics import Record, RecordStorePort, SessionClosed
from riglm.ports.spool import SpoolPort
from riglm.ports.telemetry import RecordCounts

_log: Final = logging.getLogger("riglm.recorder")
_BREATH_SECONDS: Final = 0.02  # an answer that was just given is on its way out
_MIN_WAIT_SECONDS: Final = 0.005
_FAULT_SECONDS: Final = 0.5  # before the next try after an unforeseen error
_DRAIN_REST_SHARE: Final = 0.25  # of the time of the last batch, in which others have the store
_MAX_DRAIN_REST_SECONDS: Final = 0.12  # a waiting SQLite connection polls every 100 ms
_LAST_BATCH_SECONDS: Final = 0.5
_LAST_DRAIN_SECONDS: Final = 1.0  # or the spools of ended processes stay while all processes are short
_LAST_SYNC_SECONDS: Final = 5.0  # of a slow disk, for the sync that is under way when the end begins
_CLOSE_SECONDS: Final = 0.25
_ARCHIVED: Final = Session | SessionClosed | ToolInvocation | Exposure


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Seconds to wait for an unavailable store: twice as many each time, with jitter."""

    first: float = 1.0
    longest: float = 30.0

    def delay(self, failures: int) -> float:
        """Return the pause after this many failures in a row, at least one."""
        full = min(self.longest, self.first * 2.0 ** min(failures - 1, 32))
        return full * random.uniform(0.5, 1.0)  # noqa: S311  # jitter is no secret


class Recorder:
    """Takes records at once and stores them later: in order, in batches, each at least once.

    The recorder's thread makes batches and hands them to a `StoreWriter`. If the store is unavailable, takes over
    `timeout_seconds` seconds for a batch, or is slower than records come, the batch and all that follow it go to the
    spool. They go to the store in the same order, after what ended processes left, until the spool is empty. Without a
    spool records wait in the queue. What finds the queue full is dropped and counted.

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
        limits = limits or QueueLimits()
        self._log = RateLimitedLogger(_log, monotonic)
        self._queue = RecordQueue(limits)
        self._writer = StoreWriter(open_store, self._queue, self._log)
        self._spool = open_spool and SpoolBuffer(open_spool, self._queue, limits.batch_records, self._log)
        self._backoff = backoff or Backoff()
        self._timeout_seconds = timeout_seconds
        self._head_start = head_start
        self._close_timeout = close_timeout
        self._archive = archive
        self._thread = threading.Thread(target=self._run, name="riglm-recorder", daemon=True)
        self._opens_at_once = False
        self._given: Batch | None = None
        """What the writer has: records from the queue that are nowhere else, or from the spool."""
        self._pending: deque[Batch] = deque()
        """What follows it: what the store did not take, and the next batch."""
        self._failures = 0
        self._is_slow = False
        self._retry_at = self._drain_at = 0.0
        self._ends_at: float | None = None
        self._is_last_try = False
        self._has_given_up = False
        self._reported_losses = 0

    def start(self) -> None:
        """Begin to store what is put; what was put before waits in the queue."""
        self._writer.start()  # before the other thread, so that the caller gets the error if no thread is allowed
        self._thread.start()

    def open_at_once(self) -> None:
        """Open the store at the start, with no head start and before there is a record; called before `start`."""
        self._opens_at_once = True

    def opened(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for a store that is opened at once; return True if it is open."""
        return self._opens_at_once and self._writer.wait_for_store(timeout)

    def begin(self) -> None:
        """End the head start: the client has its first list."""
        self._queue.begin()

    def put(self, item: QueueItem, size: int = 512) -> None:
        """Take a record of about `size` bytes. Does no I/O, never waits for the store, and never raises."""
        self._queue.put(item, size)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all that was put so far is stored, spooled or dropped, at most `timeout` seconds; whether it is.

        What is stored or spooled outlives this process, however that ends.
        """
        return self._queue.flush(timeout)

    def counts(self) -> RecordCounts:
        """Return what became of all records, at one instant; the size of the spool is read after that."""
        counts = self._queue.counts()
        return counts if self._spool is None else replace(counts, spool_bytes=self._spool.size_bytes)

    @property
    def is_failing(self) -> bool:
        """True if the store was unavailable at the last attempt."""
        return self._failures > 0

    def close(self, timeout: float | None = None) -> RecordCounts:
        """Take nothing more, store what is queued for at most `timeout` seconds, and spool the rest, or drop it."""
        self._queue.close()
        if self._thread.ident is not None:
            self._thread.join(self._close_timeout if timeout is None else timeout)
        self._queue.abandon()
        if self._thread.ident is not None:
            self._thread.join(_LAST_SYNC_SECONDS if self._spool else _LAST_BATCH_SECONDS + _CLOSE_SECONDS)
            self._writer.join(_CLOSE_SECONDS)
        self._queue.drop_rest()
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

    def _run(self) -> None:
        if self._opens_at_once:
            self._give(Batch())
        else:
            self._queue.wait_for_start(self._head_start, _BREATH_SECONDS)
        if self._spool is not None:
            self._spool.open()
        while not self._is_over():
            try:
                signals = self._queue.signals
                if not self._do_next():
                    self._report_losses()
                    self._queue.wait(signals, self._seconds_to_next())
            except Exception:  # noqa: BLE001  # records still arrive, and must be handled
                self._log.warn("handing out records failed; it is tried again", traceback=True)
                self._queue.wait(self._queue.signals, _FAULT_SECONDS)
        self._finish()

    def _do_next(self) -> bool:
        """Do one thing that is due; return False if nothing is."""
        if self._spool is not None:
            self._spool.sync_if_due()
        if self._queue.is_closed and self._ends_at is None and not self._is_opening():
            self._ends_at = time.monotonic() + _LAST_DRAIN_SECONDS
            self._retry_at = 0.0
            return True
        return self._collect() or self._relieve() or self._take() or self._place() or self._drain()

    def _collect(self) -> bool:
        """Note the result of the batch that the writer has finished."""
        batch = self._given
        if batch is None or self._writer.batch is not None:
            return False
        self._given = None
        if (failure := self._writer.failure) is not None:
            if batch.rest and not (batch.from_spool or batch.is_revoked):
                self._pending.appendleft(batch)
            self._failures += 1
            self._has_given_up = self._is_last_try
            self._log.warn("records wait because the store is unavailable: %s", failure)
            if self._ends_at is None:
                self._retry_at = time.monotonic() + self._backoff.delay(self._failures)
            return True
        if self._failures:
            _log.info("the store is back after %d failures", self._failures)
            self._failures = 0
        seconds = self._writer.seconds
        self._is_slow = seconds > self._timeout_seconds
        if batch.from_spool and self._spool is not None:
            self._spool.remove()
            self._drain_at = time.monotonic() + min(_DRAIN_REST_SHARE * seconds, _MAX_DRAIN_REST_SECONDS)
        return True

    def _is_storing(self) -> bool:
        """Return True if the writer has records that are nowhere else."""
        return self._given is not None and not (self._given.from_spool or self._given.is_revoked)

    def _is_opening(self) -> bool:
        """Return True while records wait for a store that is not open yet; the end waits for it, too."""
        has_records = self._given is not None or self._pending or not self._queue.is_empty
        return bool(has_records) and not self._failures and not self._writer.is_open

    def _relieve(self) -> bool:
        """Take the batch from a store that has it for too long, or while the queue fills up: it is spooled.

        What follows it must not pass it. If the store takes it after all, it gets the same again, which changes
        nothing.
        """
        if self._spool is None or self._given is None or not self._is_storing():
            return False
        is_late = self._writer.seconds > self._timeout_seconds
        if not (is_late or self._queue.is_pressed()) or self._spool.retry_in():
            return False
        if is_late and self._writer.is_open:
            self._log.warn("records go to the spool, the store is slow or hangs")
        self._is_slow = True
        self._pending.appendleft(self._queue.revoke(self._given))
        return True

    def _take(self) -> bool:
        """Make the next batch of what is queued, also while the store has one."""
        if self._pending or self._queue.due_in() != 0.0:
            return False
        self._pending.append(self._make_batch())
        return True

    def _make_batch(self) -> Batch:
        batch = Batch()
        for item in self._queue.take():
            try:
                record = item if isinstance(item, Record) else item()
                if self._archive is not None and isinstance(record, _ARCHIVED):
                    self._archive.put(record)
            except Exception:  # noqa: BLE001  # one bad record must not stop the others
                self._queue.drop_unmade()
                self._log.warn("a record could not be made; it is dropped", traceback=True)
            else:
                batch.records.append(record)
        return batch

    def _place(self) -> bool:
        """Hand the next batch to a store that works, if nothing is before it, else to the spool."""
        if not self._pending or self._is_storing():
            return False
        batch = self._pending[0]
        must_queue = self._failures or self._is_slow or self._has_more()
        if not batch.rest or (must_queue and self._spool is not None and self._spool.append(batch)):
            self._pending.popleft()
            return True
        if self._given is not None or self._has_more() or time.monotonic() < self._retry_at:
            return False
        self._give(self._pending.popleft())
        return True

    def _drain(self) -> bool:
        """Give the oldest records of the spool to the store."""
        if self._spool is None or not self._has_more() or self._given is not None:
            return False
        now = time.monotonic()
        if now < max(self._retry_at, self._drain_at):
            return False
        batch = self._spool.next()
        if batch is not None:
            self._give(batch)
        elif self._has_more():
            self._drain_at = now + _FAULT_SECONDS
        return True

    def _has_more(self) -> bool:
        return self._spool is not None and self._spool.has_more

    def _give(self, batch: Batch) -> None:
        self._given = batch
        self._is_last_try = self._ends_at is not None
        self._writer.store(batch)

    def _seconds_to_next(self) -> float | None:
        """Return the seconds until something is due; None if there will be a signal."""
        now = time.monotonic()
        times = [None if self._pending else self._queue.due_in()]
        if self._spool is not None:
            times += [self._spool.sync_in(), (self._spool.retry_in() or None) if self._pending else None]
            if self._is_storing():
                times.append(self._timeout_seconds - self._writer.seconds)
        if self._given is None and (self._pending or self._has_more()):
            times.append(max(self._retry_at, self._drain_at) - now)
        return min((max(_MIN_WAIT_SECONDS, each) for each in times if each is not None), default=None)

    def _report_losses(self) -> None:
        lost = self._queue.counts().reasons["full"]
        if lost > self._reported_losses and self._log.warn("the queue is full; %d records were dropped so far", lost):
            self._reported_losses = lost

    def _is_over(self) -> bool:
        if self._queue.is_abandoned or self._has_given_up:
            return True
        if self._ends_at is None or self._pending or self._is_storing() or not self._queue.is_empty:
            return False
        return bool(self._failures) or not self._has_more() or time.monotonic() >= self._ends_at

    def _finish(self) -> None:
        """Bring to the spool, or drop, what is left."""
        if self._given is not None and (self._spool is None or self._given.from_spool):
            self._await_writer()  # what the store takes from the spool now is not to stay there
        if self._spool is not None:
            self._spool.hurry()
        if self._given is not None:
            is_storing, rest = self._is_storing(), self._queue.revoke(self._given)
            if is_storing:
                self._pending.appendleft(rest)
        while self._pending or not self._queue.is_empty:
            batch = self._pending.popleft() if self._pending else self._make_batch()
            if batch.rest and not (self._spool is not None and self._spool.append(batch)):
                self._queue.settle(batch, len(batch.rest), "closed")
        if self._spool is not None:
            self._spool.close()
        self._report_losses()
        self._writer.close()

    def _await_writer(self) -> None:
        until = time.monotonic() + _LAST_BATCH_SECONDS
        while self._writer.batch is not None and (left := until - time.monotonic()) > 0.0:
            self._queue.wait(self._queue.signals, min(left, _MIN_WAIT_SECONDS))
        self._collect()
