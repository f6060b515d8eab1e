"""The thread that stores records. It may hang in the store as long as that likes: nobody waits for it."""

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from riglm.application.recording.complaints import Complaints
from riglm.application.recording.record_queue import Batch, RecordQueue
from riglm.domain.errors import AnalyticsUnavailable
from riglm.ports.analytics import AnalyticsPort

_log: Final = logging.getLogger("riglm.recorder")


class RecordWriter:
    """Stores one batch at a time, and settles each record with the queue that it came from.

    The store is opened by this thread for the first batch, and anew after it failed. `changed` of the queue is notified
    at the end of each batch.
    """

    def __init__(self, open_store: Callable[[], AnalyticsPort], queue: RecordQueue, complaints: Complaints) -> None:
        self._open_store = open_store
        self._queue = queue
        self._complaints = complaints
        self._orders: SimpleQueue[Batch | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="riglm-store", daemon=True)
        self._store: AnalyticsPort | None = None
        self._batch: Batch | None = None
        self._since = self._took = 0.0
        self._failure: AnalyticsUnavailable | None = None
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
    def failure(self) -> AnalyticsUnavailable | None:
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
                self._queue.changed.notify_all()
        self._let_go()

    def _stored(self, batch: Batch) -> AnalyticsUnavailable | None:
        """Store what is left of a batch, narrowing down to records that are refused; None, or why the store is away."""
        try:
            store = self._opened()
            while batch.left and not batch.taken_away:
                self._store_part(store, batch)
        except AnalyticsUnavailable as error:
            self._let_go()
            return error
        finally:
            self._tried.set()
        return None

    def _store_part(self, store: AnalyticsPort, batch: Batch) -> None:
        part = batch.rest[: batch.at_once]
        try:
            store.record_many(part)
        except AnalyticsUnavailable:
            raise
        except Exception:  # noqa: BLE001  # whatever a store raises, the rest is still to be stored
            batch.at_once = max(1, len(part) // 2)
            if len(part) == 1 and self._queue.settle(batch, refused=1):
                self._complaints.complain("the store refuses a record; it is dropped", traceback=True)
        else:
            batch.at_once *= 2
            self._queue.settle(batch, stored=len(part))

    def _opened(self) -> AnalyticsPort:
        if self._store is None:
            try:
                self._store = self._open_store().__enter__()
            except AnalyticsUnavailable:
                raise
            except Exception as error:
                raise AnalyticsUnavailable(f"the analytics store cannot be opened: {error}") from error
        return self._store

    def _let_go(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                store.__exit__(None, None, None)
            except Exception:  # noqa: BLE001  # it is given up either way
                _log.exception("the store could not be closed")
