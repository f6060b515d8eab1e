"""The spool, for what the store does not take now, as the two threads of a recorder use it."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from riglm.application.failing_open import RateLimitedLogger
from riglm.ports.analytics import Record
from riglm.ports.spool import SpooledRecords, SpoolPort, SpoolUnavailableError

_SYNC_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 0.5


class SpoolBuffer:
    """A spool that fails without raising: any error counts as unavailable, is logged, and tried again later.

    `has_more` is True while records wait in it: later ones must queue there. `size_bytes` is what it takes on disk.
    Both may be read at any time.
    """

    def __init__(
        self,
        open_spool: Callable[[], SpoolPort] | None,
        on_read: Callable[[SpooledRecords], None],
        rate_limited_log: RateLimitedLogger,
    ) -> None:
        """`on_read` is called with what is read, once. Without `open_spool` nothing is ever taken."""
        self._open_spool = open_spool
        self._on_read = on_read
        self._log = rate_limited_log
        self._lock = threading.RLock()
        self._spool: SpoolPort | None = None
        self._must_remove = False
        self._sync_at: float | None = None
        self._retry_at = math.inf if open_spool is None else 0.0
        self.exists = open_spool is not None
        self.has_more = False
        self.size_bytes = 0

    def open(self) -> None:
        """Adopt the spools of ended processes."""
        with self._lock:
            if not self.exists:
                return
            try:
                self._opened()
            except Exception as error:  # noqa: BLE001  # see the class
                self._refuse(error)

    def append(self, records: Sequence[Record], settle: Callable[[int], None]) -> bool:
        """Put records into the spool; False if it takes nothing now.

        `settle` is called with the number of records that cannot be written down, before the others can be read.
        """
        with self._lock:
            if self.retry_in():
                return False
            try:
                spool = self._opened()
                refused = spool.append(records)
            except Exception as error:  # noqa: BLE001  # see the class
                self._refuse(error)
                return False
            settle(refused)
            self.size_bytes = spool.size_bytes
            if self._sync_at is None:
                self._sync_at = time.monotonic() + _SYNC_SECONDS
            self.has_more = True
        if refused:
            self._log.warn("records that cannot be written down are dropped")
        return True

    def retry_in(self) -> float:
        """Return in how many seconds it may take records again, 0 if it does now."""
        return max(0.0, self._retry_at - time.monotonic())

    def next(self, limit: int) -> list[Record] | None:
        """Return the oldest records, at most `limit`, which stay until `remove`.

        None at the end, or while `has_more` if the spool cannot be read now.
        """
        with self._lock:
            try:
                return self._read(limit)
            except Exception as error:  # noqa: BLE001  # see the class
                self._warn("records wait in the spool, which cannot be read, or shortened, now: %s", error)
                return None

    def remove(self) -> None:
        """Remove what `next` returned."""
        with self._lock:
            self._must_remove = True
            try:
                self._remove(self._opened())
            except Exception as error:  # noqa: BLE001  # see the class
                self._warn("records wait in the spool, which cannot be read, or shortened, now: %s", error)

    def sync_in(self) -> float | None:
        """Return the seconds until the spool must be synced, None if everything is."""
        return None if self._sync_at is None else max(0.0, self._sync_at - time.monotonic())

    def sync_if_due(self) -> None:
        """Bring to the disk what was appended, if that was long enough ago."""
        if self.sync_in() == 0.0:
            with self._lock:
                self._sync_at = None
                try:
                    self._opened().sync()
                except Exception as error:  # noqa: BLE001  # see the class
                    self._warn("%s; what was not synced is safe from a crash of riglm only", error)

    def hurry(self) -> None:
        """Take the last records without waiting for a slow disk, and try again what failed just now."""
        with self._lock:
            if self.exists:
                self._retry_at = 0.0
            if self._spool is not None:
                self._spool.hurry()

    def close(self) -> None:
        """Sync, and leave the rest to the next process."""
        with self._lock:
            if self._spool is not None:
                try:
                    self._spool.__exit__(None, None, None)
                except Exception as error:  # noqa: BLE001  # see the class
                    self._warn("the spool could not be closed: %s", error)

    def _opened(self) -> SpoolPort:
        if self._spool is None:
            if self._open_spool is None:
                raise SpoolUnavailableError("there is no spool")
            self._spool = spool = self._open_spool().__enter__()
            self.has_more = not spool.is_empty
            self.size_bytes = spool.size_bytes
        return self._spool

    def _read(self, limit: int) -> list[Record] | None:
        spool = self._opened()
        if self._must_remove:
            self._remove(spool)
        while self.has_more:
            found = spool.read(limit)
            self.has_more = found is not None
            self.size_bytes = spool.size_bytes
            if found is not None:
                self._on_read(found)
                if found.damaged:
                    self._log.warn("%d records in the spool are damaged, and lost", found.damaged)
                if found.records:
                    return found.records
                if not found.skipped:
                    self._remove(spool)
        return None

    def _remove(self, spool: SpoolPort) -> None:
        spool.remove()
        self._must_remove = False
        self.has_more = not spool.is_empty
        self.size_bytes = spool.size_bytes

    def _refuse(self, error: Exception) -> None:
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        self._warn("records wait in memory, and may be lost: %s", error)

    def _warn(self, words: str, error: Exception) -> None:
        self._log.warn(words, error, traceback=not isinstance(error, SpoolUnavailableError))
