"""Updates of learned pairs, made when the calls that teach them are out of the way."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

MAX_UPDATES: Final = 2_000
"""Maximum number of waiting updates."""

_PAUSE_SECONDS: Final = 0.01
_SHARE: Final = 0.1
_log: Final = logging.getLogger("riglm.prediction")


class TrainingQueue:
    """A queue that is worked off on the event loop, one update at a time, in at most a tenth of its time.

    Until `begin` nothing is done: what calls teach is added to what earlier runs taught, which is loaded first. Of too
    many updates the oldest are made at once, or left out before `begin`. Updates must not raise.
    """

    def __init__(self) -> None:
        self._updates: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._has_begun = False
        self._left_out = 0

    def add(self, update: Callable[[], None]) -> None:
        """Queue an update."""
        self._updates.append(update)
        if len(self._updates) > MAX_UPDATES:
            oldest = self._updates.popleft()
            if self._has_begun:
                oldest()
            else:
                self._left_out += 1
        self._schedule(_PAUSE_SECONDS)

    def begin(self) -> None:
        """Start with what waits."""
        self._has_begun = True
        self._schedule(_PAUSE_SECONDS)

    def catch_up(self) -> None:
        """Make all waiting updates now, if the queue has begun: no call is delayed by it."""
        while self._has_begun and self._updates:
            self._updates.popleft()()

    def close(self) -> None:
        """Make the remaining updates, if the queue has begun."""
        self.catch_up()
        self._left_out += len(self._updates)
        self._updates.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._left_out:
            _log.warning("%d calls taught nothing of their contexts: they came before prediction was", self._left_out)

    def _schedule(self, seconds: float) -> None:
        if self._has_begun and self._updates and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._update_next)

    def _update_next(self) -> None:
        self._timer = None
        if self._updates:
            began = time.perf_counter()
            self._updates.popleft()()
            self._schedule(max(_PAUSE_SECONDS, (time.perf_counter() - began) / _SHARE))
