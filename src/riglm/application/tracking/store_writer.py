"""The thread that stores batches and may hang in the store, and the spool for what the store does not take now."""

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from riglm.application.failing_open import RateLimitedLogger
from riglm.application.tracking.record_queue import Batch, RecordQueue
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.ports.analytics import RecordStorePort
from riglm.ports.spool import SpoolPort, SpoolUnavailableError

_log: Final = logging.getLogger("riglm.recorder")


class StoreWriter:
    """Stores one batch at a time, and settles each record with the queue that it came from.

    The thread opens the store for the first batch, and again after a failure. `batch` is the one that is being stored,
    `failure` is why the store did not take the last one.
    """

    def __init__(
        self, open_store: Callable[[], RecordStorePort], queue: RecordQueue, rate_limited_log: RateLimitedLogger
    ) -> None:
        self._open_store = open_store
        self._queue = queue
        self._rate_limited_log = rate_limited_log
        self._orders: SimpleQueue[Batch | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="riglm-store", daemon=True)
        self._store: RecordStorePort | None = None
        self._tried = threading.Event()
        self._since = self._took = 0.0
        self.batch: Batch | None = None
        self.failure: AnalyticsUnavailableError | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def store(self, batch: Batch) -> None:
        """Store a batch, one at a time; an empty one opens the store."""
        self._since = time.monotonic()
        self.failure = None
        self.batch = batch
        self._orders.put(batch)

    @property
    def is_open(self) -> bool:
        """True if the store is open."""
        return self._store is not None

    @property
    def seconds(self) -> float:
        """For how long the batch has been stored, or how long the last one took."""
        return self._took if self.batch is None else time.monotonic() - self._since

    def wait_for_store(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the first try to open the store; return True if it is open."""
        return self._tried.wait(timeout) and self.is_open

    def close(self) -> None:
        """Close the store after the batch that is being stored."""
        self._orders.put(None)

    def join(self, timeout: float) -> None:
        """Wait for the end, at most `timeout` seconds."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while (batch := self._orders.get()) is not None:
            self.failure = self._store_batch(batch)
            self._took = time.monotonic() - self._since
            self.batch = None
            is_awaited = self.failure is not None or batch.from_spool or batch.is_revoked
            self._queue.notify_stored(is_awaited=is_awaited)
        self._close_store()

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
        try:
            store.record_many(part)
        except AnalyticsUnavailableError:
            batch.at_once = max(1, len(part) // 2)  # a disk with little space may take less at once
            raise
        except Exception:  # noqa: BLE001  # a store may raise anything, and the rest must still be stored
            batch.at_once = max(1, len(part) // 2)
            if len(part) == 1 and self._queue.settle(batch, 1, "refused"):
                self._rate_limited_log.warn("the store refuses a record; it is dropped", traceback=True)
        else:
            batch.at_once *= 2
            self._queue.settle(batch, len(part), "stored")

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                store.__exit__(None, None, None)
            except Exception:  # noqa: BLE001  # it is given up either way
                _log.exception("the store could not be closed")


_SYNC_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 0.5


class SpoolBuffer:
    """Moves records between the queue's account and a spool. The recorder's thread alone uses it.

    Any error of the spool counts as unavailable, and goes no further: it is logged, and tried again later.
    `has_more` is True while records wait in the spool: later ones must queue there. `size_bytes` is what the spool
    takes on disk; any thread may read it.
    """

    def __init__(
        self,
        open_spool: Callable[[], SpoolPort],
        queue: RecordQueue,
        batch_records: int,
        rate_limited_log: RateLimitedLogger,
    ) -> None:
        """`batch_records` is the maximum number of records that are stored at once."""
        self._open_spool = open_spool
        self._batch_records = batch_records
        self._queue = queue
        self._rate_limited_log = rate_limited_log
        self._spool: SpoolPort | None = None
        self._batch: Batch | None = None
        self._must_remove = False
        self._sync_at: float | None = None
        self._retry_at = 0.0
        self.has_more = False
        self.size_bytes = 0

    def open(self) -> None:
        """Adopt the spools of ended processes."""
        try:
            self._opened()
        except Exception as error:  # noqa: BLE001  # see the class
            self._refuse(error)

    def append(self, batch: Batch) -> bool:
        """Put a batch into the spool; False if it takes nothing now."""
        if self.retry_in() > 0.0:
            return False
        try:
            spool = self._opened()
            refused = spool.append(batch.rest)
        except Exception as error:  # noqa: BLE001  # see the class
            self._refuse(error)
            return False
        if refused:
            self._rate_limited_log.warn("records that cannot be written down are dropped")
            self._queue.settle(batch, refused, "refused")
        self._queue.settle(batch, len(batch.rest), "spooled")
        self.size_bytes = spool.size_bytes
        if self._sync_at is None:
            self._sync_at = time.monotonic() + _SYNC_SECONDS
        self.has_more = True
        return True

    def retry_in(self) -> float:
        """Return in how many seconds it may take records again, 0 if it does now."""
        return max(0.0, self._retry_at - time.monotonic())

    def next(self) -> Batch | None:
        """Return the oldest records, the same until `remove`.

        None at the end, or while `has_more` if the spool cannot be read now.
        """
        try:
            self._read_batch()
        except Exception as error:  # noqa: BLE001  # see the class
            self._warn("records wait in the spool, which cannot be read, or shortened, now: %s", error)
        return self._batch

    def remove(self) -> None:
        """Remove the batch that `next` returned, and look for more."""
        self._batch, self._must_remove = None, True
        self.next()

    def sync_in(self) -> float | None:
        """Return the seconds until the spool must be synced, None if everything is."""
        return None if self._sync_at is None else max(0.0, self._sync_at - time.monotonic())

    def sync_if_due(self) -> None:
        """Bring to the disk what was appended, if that was long enough ago."""
        if self.sync_in() == 0.0:
            self._sync_at = None
            try:
                self._opened().sync()
            except Exception as error:  # noqa: BLE001  # see the class
                self._warn("%s; what was not synced is safe from a crash of riglm only", error)

    def hurry(self) -> None:
        """Take the last records without waiting for a slow disk, and try again what failed just now."""
        self._retry_at = 0.0
        if self._spool is not None:
            self._spool.hurry()

    def close(self) -> None:
        """Sync, and leave the rest to the next process."""
        if self._spool is not None:
            try:
                self._spool.__exit__(None, None, None)
            except Exception as error:  # noqa: BLE001  # see the class
                self._warn("the spool could not be closed: %s", error)

    def _opened(self) -> SpoolPort:
        if self._spool is None:
            self._spool = spool = self._open_spool().__enter__()
            self.has_more = not spool.is_empty
            self.size_bytes = spool.size_bytes
        return self._spool

    def _refuse(self, error: Exception) -> None:
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        self._warn("records wait in memory, and may be lost: %s", error)

    def _warn(self, words: str, error: Exception) -> None:
        self._rate_limited_log.warn(words, error, traceback=not isinstance(error, SpoolUnavailableError))

    def _read_batch(self) -> None:
        spool = self._opened()
        if self._must_remove:
            spool.remove()
            self._must_remove = False
        while self._batch is None and self.has_more:
            found = spool.read(self._batch_records)
            self.has_more = found is not None
            if found is not None:
                if not found.is_own:
                    self._queue.recover(len(found.records) + found.damaged)
                if found.damaged:
                    self._queue.drop_damaged(found.damaged)
                    self._rate_limited_log.warn("%d records in the spool are damaged, and lost", found.damaged)
                if found.records:
                    self._batch = Batch(records=found.records, from_spool=True)
                elif not found.skipped:
                    spool.remove()
        self.size_bytes = spool.size_bytes
