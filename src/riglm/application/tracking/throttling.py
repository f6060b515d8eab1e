"""Long work done in steps, with pauses in which others have the store."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

MIN_PAUSE_SECONDS: Final = 0.02
_PAUSES: Final = 2.0  # times the duration of the step before: others have the store two thirds of the time

_REST_SHARE: Final = 0.25
_MAX_REST_SECONDS: Final = 0.12  # a waiting SQLite connection polls every 100 ms

_Step = TypeVar("_Step")


def at_a_pace(steps: Iterator[_Step], wait: Callable[[float], object]) -> Iterator[_Step]:
    """The steps, each followed by a pause that is longer than it took.

    `wait` is called with the pause in seconds; if it returns True, the rest is given up.
    """
    while True:
        began = time.monotonic()
        try:
            step = next(steps)
        except StopIteration:
            return
        took = time.monotonic() - began
        yield step
        if wait(max(MIN_PAUSE_SECONDS, took * _PAUSES)):
            return


def rest_after(seconds: float) -> float:
    """For how many seconds a replay leaves the store to others after a batch that took `seconds`.

    That is a quarter, but no more than others need to get in: a batch that took long mostly waited for a lock
    or a server that hung, and others lost nothing by that.
    """
    return min(_REST_SHARE * seconds, _MAX_REST_SECONDS)


_QUIET_SECONDS: Final = 60.0


class RateLimitedLogger:
    """Logs warnings of one logger. Any thread may complain."""

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._quiet_until: dict[str, float] = {}

    def warn(self, message: str, *details: object, traceback: bool = False) -> bool:
        """Log a warning unless the same one was logged within the last minute; whether it was logged."""
        with self._lock:
            now = self._monotonic()
            if now < self._quiet_until.get(message, now):
                return False
            self._quiet_until[message] = now + _QUIET_SECONDS
        self._log.warning(message, *details, exc_info=traceback)
        return True
