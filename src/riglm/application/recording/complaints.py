"""Warnings that would come again and again, each told once a minute."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

_QUIET_SECONDS: Final = 60.0


class Complaints:
    """Logs warnings of one logger. Any thread may complain."""

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._quiet_until: dict[str, float] = {}

    def complain(self, message: str, *details: object, traceback: bool = False) -> bool:
        """Log a warning unless the same one was logged within the last minute; whether it was logged."""
        with self._lock:
            now = self._monotonic()
            if now < self._quiet_until.get(message, now):
                return False
            self._quiet_until[message] = now + _QUIET_SECONDS
        self._log.warning(message, *details, exc_info=traceback)
        return True
