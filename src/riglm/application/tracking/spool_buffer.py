"""The overflow: what the store does not take now waits in a spool on disk, and goes to the store in its order."""

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from riglm.application.tracking.record_queue import Batch, RecordQueue
from riglm.application.tracking.throttling import RateLimitedLogger
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.ports.analytics import RecordStorePort
from riglm.ports.spool import SpooledRecords, SpoolPort, SpoolUnavailableError

_SYNC_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 0.5


class SpoolBuffer:
    """Moves records between the queue's account and a spool. The recorder's thread alone uses it.

    Any error of the spool counts as unavailable, and goes no further: it is logged, and tried again later.
    `has_more` is True while records wait in the spool: records that depend on the order must queue there.
    `size_bytes` is what the spool takes on disk; any thread may read it.
    """

    def __init__(
        self, open_spool: Callable[[], SpoolPort], queue: RecordQueue, most: int, rate_limited_log: RateLimitedLogger
    ) -> None:
        """`most` is the maximum number of records that are stored at once."""
        self._open_spool = open_spool
        self._most = most
        self._queue = queue
        self._rate_limited_log = rate_limited_log
        self._spool: SpoolPort | None = None
        self._own = 0
        self._has_adopted = False
        self._is_own = False
        self._batch: Batch | None = None
        self._must_remove = False
        """True until the records that were settled last are removed."""
        self._dirty_since: float | None = None
        self._failed_at: float | None = None
        self.has_more = False
        self.size_bytes = 0

    @property
    def is_soon_empty(self) -> bool:
        """Whether what waits in the spool came from this process alone."""
        return self._own > 0 and not self._has_adopted

    @property
    def is_refusing(self) -> bool:
        """Whether it did not take what it was last given."""
        return self._failed_at is not None

    def open(self) -> None:
        """Adopt the spools of ended processes."""
        try:
            self._opened()
        except Exception as error:  # noqa: BLE001  # see the class
            self._fail(error)

    def keep(self, batch: Batch) -> bool:
        """Put a batch into the spool; False when it takes nothing now."""
        if self.pause():
            return False
        try:
            spool = self._opened()
            refused = spool.append(batch.rest)
        except Exception as error:  # noqa: BLE001  # see the class
            self._fail(error)
            return False
        self._failed_at = None
        if refused:
            self._rate_limited_log.warn("records that cannot be written down are dropped")
        self._own += batch.left - refused
        self.size_bytes = spool.size_bytes
        self._queue.spooled(batch, refused=refused)
        if self._dirty_since is None:
            self._dirty_since = time.monotonic()
        self.has_more = True
        return True

    def pause(self) -> float | None:
        """In how many seconds it may take records again, None if it does now."""
        return None if self._failed_at is None else max(0.0, self._failed_at + _RETRY_SECONDS - time.monotonic())

    def next(self) -> Batch | None:
        """Return the records to be stored next: those that are not settled again, else those after them.

        None at the end, or while `has_more` if the spool cannot be read now.
        """
        if self._batch is None:
            self._fetch()
        return self._batch

    def settled(self, batch: Batch) -> None:
        """Remove the batch that `next` returned, all of which is settled, and look for the records after it."""
        if self._is_own:
            self._own -= len(batch.records)
        self._must_remove = True
        self._fetch()

    def sync_in(self) -> float | None:
        """Return the seconds until the spool must be synced, None if everything is."""
        return None if self._dirty_since is None else max(0.0, self._dirty_since + _SYNC_SECONDS - time.monotonic())

    def sync_if_due(self) -> None:
        """Bring to the disk what was kept, if that was long enough ago."""
        if self.sync_in() != 0.0:
            return
        self._dirty_since = None
        try:
            self._opened().sync()
        except Exception as error:  # noqa: BLE001  # see the class
            words = "%s; what was not synced is safe from a crash of riglm only"
            self._rate_limited_log.warn(words, error, traceback=_is_unforeseen(error))

    def hurry(self) -> None:
        """Take the last records without waiting for a slow disk, and take no account of a failure that was just now."""
        self._failed_at = None
        if self._spool is not None:
            self._spool.hurry()

    def close(self) -> None:
        """Sync, and leave the rest to the next process."""
        if self._spool is not None:
            try:
                self._spool.__exit__(None, None, None)
            except Exception as error:  # noqa: BLE001  # see the class
                self._rate_limited_log.warn("the spool could not be closed: %s", error, traceback=True)

    def _opened(self) -> SpoolPort:
        if self._spool is None:
            spool = self._open_spool().__enter__()
            self._spool = spool
            self.has_more = True  # until it is known better
            self.has_more = self._has_adopted = not spool.is_empty
            self.size_bytes = spool.size_bytes
        return self._spool

    def _fail(self, error: Exception) -> None:
        self._failed_at = time.monotonic()
        words = "records wait in memory, and may be lost: %s"
        self._rate_limited_log.warn(words, error, traceback=_is_unforeseen(error))

    def _fetch(self) -> None:
        self._batch = None
        try:
            self._look_for_more()
        except Exception as error:  # noqa: BLE001  # see the class
            words = "records wait in the spool, which cannot be read, or shortened, now: %s"
            self._rate_limited_log.warn(words, error, traceback=_is_unforeseen(error))

    def _look_for_more(self) -> None:
        spool = self._opened()
        if self._must_remove:
            spool.remove()
            self._must_remove = False
        while self._batch is None and self.has_more:
            found = spool.read(self._most)
            self.has_more = found is not None
            self._has_adopted = found is not None and not found.is_own
            if found is not None:
                self._is_own = found.is_own
                self._count(found)
                if found.records:
                    self._batch = Batch(records=found.records, left=len(found.records), from_spool=True)
                elif not found.skipped:
                    spool.remove()
        self.size_bytes = spool.size_bytes

    def _count(self, found: SpooledRecords) -> None:
        if found.is_own:
            self._own -= found.damaged + found.skipped
        else:
            self._queue.recover(len(found.records) + found.damaged)
        if found.damaged:
            self._queue.damaged(found.damaged)
            self._rate_limited_log.warn("%d records in the spool are damaged, and lost", found.damaged)


def _is_unforeseen(error: Exception) -> bool:
    return not isinstance(error, SpoolUnavailableError)


_log: Final = logging.getLogger("riglm.recorder")


class RecordWriter:
    """Stores one batch at a time, and settles each record with the queue that it came from.

    This thread opens the store for the first batch, and again after a failure. `changed` of the queue is notified
    at the end of each batch.
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
        self._batch: Batch | None = None
        self._since = self._took = 0.0
        self._failure: AnalyticsUnavailableError | None = None
        self._tried = threading.Event()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def store(self, batch: Batch) -> None:
        """Store a batch, one at a time; an empty one opens the store."""
        self._since = time.monotonic()
        self._failure = None
        self._batch = batch
        self._orders.put(batch)

    @property
    def batch(self) -> Batch | None:
        """The batch that is being stored, None when there is none."""
        return self._batch

    @property
    def failure(self) -> AnalyticsUnavailableError | None:
        """Why the store did not take the last batch, None if it did."""
        return self._failure

    @property
    def is_open(self) -> bool:
        """Whether the store is open."""
        return self._store is not None

    @property
    def seconds(self) -> float:
        """For how long the batch has been under way, or how long the last one took."""
        return self._took if self._batch is None else time.monotonic() - self._since

    def opened(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the first try to open the store; whether it is open."""
        return self._tried.wait(timeout) and self.is_open

    def end(self) -> None:
        """Close the store after what is under way."""
        self._orders.put(None)

    def join(self, timeout: float) -> None:
        """Wait for the end, at most `timeout` seconds."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while (batch := self._orders.get()) is not None:
            failure = self._stored(batch)
            with self._queue.changed:
                self._failure = failure
                self._took = time.monotonic() - self._since
                self._batch = None
                # Otherwise the recorder looks again soon, or when a record comes.
                if failure is not None or batch.is_awaited or batch.is_revoked or not self._queue.is_idle():
                    self._queue.changed.notify_all()
        self._detach()

    def _stored(self, batch: Batch) -> AnalyticsUnavailableError | None:
        """Store the rest of a batch, isolating refused records; return why the store is unavailable, or None."""
        try:
            store = self._opened()
            while batch.left and not batch.is_revoked:
                self._store_part(store, batch)
        except AnalyticsUnavailableError as error:
            self._detach()
            return error
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
            if len(part) == 1 and self._queue.settle(batch, refused=1):
                self._rate_limited_log.warn("the store refuses a record; it is dropped", traceback=True)
        else:
            batch.at_once *= 2
            self._queue.settle(batch, stored=len(part))

    def _opened(self) -> RecordStorePort:
        if self._store is None:
            try:
                self._store = self._open_store().__enter__()
            except AnalyticsUnavailableError:
                raise
            except Exception as error:
                raise AnalyticsUnavailableError(f"the analytics store cannot be opened: {error}") from error
        return self._store

    def _detach(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                store.__exit__(None, None, None)
            except Exception:  # noqa: BLE001  # it is given up either way
                _log.exception("the store could not be closed")
