"""The recorder: stores records from separate threads, so that no call waits for storage."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Final, Self

from riglm.application.tracking.dispatch import Backoff, Dispatcher
from riglm.application.tracking.record_queue import QueueItem, QueueLimits, RecordCounts, RecordQueue
from riglm.application.tracking.spool_buffer import RecordWriter, SpoolBuffer
from riglm.application.tracking.throttling import RateLimitedLogger
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ToolInvocation
from riglm.domain.session import Session
from riglm.ports.analytics import Record, RecordStorePort, SessionClosed
from riglm.ports.spool import SpoolPort

_log: Final = logging.getLogger("riglm.recorder")
_LAST_WORDS_SECONDS: Final = 0.25
_LAST_SYNC_SECONDS: Final = 5.0  # of a slow disk, for the sync that is under way when the end begins
_STANDSTILL_SECONDS: Final = 1.0
_GLANCE_SECONDS: Final = 0.05


class Recorder:
    """Takes records at once and stores them later: in order, in batches, each at least once.

    One thread hands out batches, a second one stores them. While the store is unavailable, slow or hangs, records go to
    the spool, and from there to the store when it is back, oldest first and in turn with what comes then; what
    ended processes left comes before. Invocations and exposures may overtake the spool; records that depend on the
    order (sessions, their ends, what was learned) queue up in it. Without a spool records wait in the queue. What
    finds the queue full is dropped and counted.

    After `timeout_seconds` seconds with one batch the store counts as slow.

    For `head_start` seconds, or until `begin`, nothing is done: what is imported to open the store would slow the first
    answers. At the end a working store gets `close_timeout` seconds, one that is unavailable or makes no progress much
    less; the rest goes to the spool.
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
        rate_limited_log = RateLimitedLogger(_log, monotonic)
        self._queue = RecordQueue(limits)
        self._writer = RecordWriter(open_store, self._queue, rate_limited_log)
        self._overflow = (
            None if open_spool is None else SpoolBuffer(open_spool, self._queue, limits.batch_records, rate_limited_log)
        )
        self._dispatcher = Dispatcher(
            self._queue,
            self._writer,
            self._overflow,
            rate_limited_log,
            backoff or Backoff(),
            timeout_seconds,
            None if archive is None else archive.put_usage,
        )
        self._head_start = head_start
        self._close_timeout = close_timeout
        self._thread = threading.Thread(target=self._run, name="riglm-recorder", daemon=True)
        self._at_once = False

    def start(self) -> None:
        """Begin to store what is put; what was put before waits in the queue."""
        self._writer.start()  # before the other thread, so that the caller gets the error if no thread is allowed
        self._thread.start()

    def open_at_once(self) -> None:
        """Open the store at the start, with no head start and before there is a record; called before `start`."""
        self._at_once = True

    def opened(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for a store that is opened at once; return True if it is open."""
        return self._at_once and self._writer.opened(timeout)

    def begin(self) -> None:
        """End the head start: the client has its first list."""
        self._queue.begin()

    def put(self, item: QueueItem, size: int = 512) -> None:
        """Take a record of about `size` bytes. Does no I/O, never waits for the store, and never raises."""
        self._queue.put(item, size)

    def put_usage(self, record: Record) -> None:
        """Take a record if it is a session, its end, an invocation or an exposure."""
        if isinstance(record, Session | SessionClosed | ToolInvocation | Exposure):
            self.put(record)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all that was put so far is stored, spooled or dropped, at most `timeout` seconds; whether it is.

        What is stored or spooled outlives this process, however that ends.
        """
        return self._queue.flush(timeout)

    def counts(self) -> RecordCounts:
        """What became of all records, at one instant; the size of the spool is read after that."""
        counts = self._queue.counts()
        return counts if self._overflow is None else replace(counts, spool_bytes=self._overflow.size_bytes)

    @property
    def is_failing(self) -> bool:
        """True if the store was unavailable at the last attempt."""
        return self._dispatcher.is_failing

    def close(self, timeout: float | None = None) -> RecordCounts:
        """Take nothing more, store what is queued for at most `timeout` seconds, and spool the rest, or drop it.

        A store that failed, or that was open and stored nothing for a second, is not waited for any longer.
        """
        self._queue.close()
        if self._thread.ident is not None:
            self._join(self._close_timeout if timeout is None else timeout)
        self._queue.abandon()
        if self._thread.ident is not None:
            self._thread.join(_LAST_SYNC_SECONDS if self._overflow else _LAST_WORDS_SECONDS)
            self._writer.join(_LAST_WORDS_SECONDS)
        self._queue.empty()
        counts = self.counts()
        self._notify(counts)
        return counts

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _join(self, timeout: float) -> None:
        """Wait for the end as long as the store gets on: opening it is getting on, failing to is not."""
        until = time.monotonic() + timeout
        stored, stands_since = -1, 0.0
        while self._thread.is_alive() and (now := time.monotonic()) < until:
            if (already := self.counts().stored) != stored:
                stored, stands_since = already, now
            if now - stands_since >= _STANDSTILL_SECONDS and (self._dispatcher.is_failing or self._writer.is_open):
                return
            self._thread.join(min(_GLANCE_SECONDS, until - now))

    def _notify(self, counts: RecordCounts) -> None:
        _log.info("recording ended", extra=asdict(counts))
        if counts.spooled:
            _log.info("%d records wait on disk for the next start", counts.spooled)
        if lost := counts.reasons["closed"] + counts.queued:
            _log.warning("%d records could not be stored before the end and are lost", lost)

    def _run(self) -> None:
        if self._at_once:
            self._dispatcher.open_store()
        else:
            self._queue.rest(self._head_start)
        if self._overflow is not None:
            self._overflow.open()
        self._dispatcher.run()
