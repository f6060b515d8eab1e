"""Isolation of failures: an error in riglm never reaches a client."""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

_QUIET_SECONDS: Final = 60.0


class FailingOpen:
    """A block whose failure is logged once for each kind, and then forgotten. It may be entered again and again.

    On the path of every call a `try` statement with `report` takes its place: it costs nothing if nothing fails.
    """

    def __init__(self, log: logging.Logger, words: str) -> None:
        """`words` describe the failure and its effect, and are followed by "this is logged once"."""
        self._log = log
        self._words = words
        self._reported: set[type[BaseException]] = set()

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.report(error)
        return True

    def report(self, error: Exception) -> None:
        """Log a failure, unless one of its kind was logged before."""
        if type(error) not in self._reported:
            self._reported.add(type(error))
            self._log.error("%s this is logged once", self._words, exc_info=error)


class RateLimitedLogger:
    """Logs each warning of a logger at most once a minute. It may be used by any thread."""

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._quiet_until: dict[str, float] = {}

    def warn(self, message: str, *details: object, traceback: bool = False) -> bool:
        """Log a warning unless the same one was logged within the last minute; return True if it was logged."""
        with self._lock:
            now = self._monotonic()
            if now < self._quiet_until.get(message, now):
                return False
            self._quiet_until[message] = now + _QUIET_SECONDS
        self._log.warning(message, *details, exc_info=traceback)
        return True
