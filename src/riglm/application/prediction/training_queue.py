"""Updates of learned pairs, made when the calls that teach them are out of the way."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

MAX_UPDATES: Final = 2_000
"""Maximum number of waiting updates."""

_PAUSE_SECONDS: Final = 0.01
_SHARE: Final = 0.1
_log: Final = logging.getLogger("riglm.prediction")


class TrainingQueue:
    """A queue that is worked off on the event loop, one update at a time, in at most a tenth of its time.

    Until `work_off` no update is made: what calls teach is added to what earlier runs taught, which is loaded first. Of
    too many updates the oldest are made at once, or left out before `work_off`. Updates must not raise.
    """

    def __init__(self) -> None:
        self._updates: asyncio.Queue[Callable[[], None]] = asyncio.Queue()
        self._has_begun = False

    def add(self, update: Callable[[], None]) -> None:
        """Queue an update."""
        self._updates.put_nowait(update)
        if self._updates.qsize() > MAX_UPDATES:
            oldest = self._updates.get_nowait()
            if self._has_begun:
                oldest()

    async def work_off(self) -> None:
        """Make the updates that wait and that are still to come, until it is canceled."""
        self._has_begun = True
        while True:
            update, began = await self._updates.get(), time.perf_counter()
            update()
            await asyncio.sleep(max(_PAUSE_SECONDS, (time.perf_counter() - began) / _SHARE))

    def catch_up(self) -> None:
        """Make all waiting updates now, if `work_off` has begun: no call is delayed by it."""
        while self._has_begun and not self._updates.empty():
            self._updates.get_nowait()()

    def close(self) -> None:
        """Make the remaining updates, if `work_off` has begun."""
        self.catch_up()
        if not self._updates.empty():
            _log.warning("calls taught nothing of their contexts: they came before prediction was loaded")
