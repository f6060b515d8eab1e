"""The thread that stores batches. It may hang in the store; the recorder's other thread does not."""

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
