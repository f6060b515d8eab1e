"""What calls teach, learned when the calls are out of the way."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final

MOST_LESSONS: Final = 256
"""Lessons that wait; more are not taken, and are learned from the store at the next start."""

_PAUSE_SECONDS: Final = 0.01
_SHARE: Final = 0.1
_SHARE_BESIDE_CALLS: Final = 0.02


class Lessons:
    """A queue that is worked off on the event loop one at a time, in at most a tenth of its time.

    While calls follow each other closely it takes a fiftieth: whichever call comes during a lesson waits for its end.
    Until `begin` nothing is learned: what calls teach is added to what earlier runs taught, which is loaded first.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` tells how long a lesson took, in seconds."""
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._begun = False
        self._last_seconds = 0.0
        self._last_end = -math.inf
        self._last_added = -math.inf

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, lesson: Callable[[], None]) -> bool:
        """Have something learned, which must not raise; whether there was room for it."""
        if len(self._waiting) >= MOST_LESSONS:
            return False
        self._waiting.append(lesson)
        self._last_added = self._clock()
        self._set_timer()
        return True

    def begin(self) -> None:
        """Start with what waits."""
        self._begun = True
        self._set_timer()

    def finish(self, seconds: float) -> None:
        """Learn what is left as far as there is time, if learning has begun, and drop the rest."""
        until = self._clock() + seconds
        while self._begun and self._waiting and self._clock() < until:
            self._waiting.popleft()()
        self._waiting.clear()
        self._begun = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if self._begun and self._waiting and self._timer is None:
            pause = max(_PAUSE_SECONDS, self._last_seconds / _SHARE)
            self._timer = asyncio.get_running_loop().call_later(pause, self._learn_next)

    def _learn_next(self) -> None:
        self._timer = None
        began = self._clock()
        if not self._is_in_the_way(began):
            self._waiting.popleft()()
            self._last_end = self._clock()
            self._last_seconds = self._last_end - began
        self._set_timer()

    def _is_in_the_way(self, now: float) -> bool:
        """Whether a call may come at any moment, and there was a lesson not long ago."""
        has_calls = now - self._last_added < _PAUSE_SECONDS
        return has_calls and now - self._last_end < self._last_seconds / _SHARE_BESIDE_CALLS
