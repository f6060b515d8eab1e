"""What people decided about tools by hand, at hand whenever a list is made or a tool is called."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from riglm.application.failing_open import FailingOpen
from riglm.application.worker import Worker
from riglm.domain.override import Override
from riglm.ports.overrides import OverridesPort

PAUSE_SECONDS: Final = 2.0
"""So long after the last look the store is looked at again: other processes change it as well."""

_log: Final = logging.getLogger("riglm.filtering")


class Overrides:
    """The overrides in force, as they were when the store was last looked at.

    A store that is away leaves those that were read last. Whoever asks gets them at once.
    """

    def __init__(
        self,
        worker: Worker,
        store: Callable[[], OverridesPort],
        *,
        pause: float = PAUSE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """The store is asked on the worker; `clock` gives seconds since the epoch."""
        self._worker = worker
        self._store = store
        self._pause = pause
        self._clock = clock
        self._read: tuple[Override, ...] = ()
        self._in_force: tuple[Override, ...] = ()
        self._listener: Callable[[], None] | None = None
        self._looked = asyncio.Event()
        self._guarded = FailingOpen(_log, "overrides could not be read; those that were read last count, and")

    def in_force(self) -> Sequence[Override]:
        """All that had not expired when the store was last looked at."""
        return self._in_force

    def when_changed(self, listener: Callable[[], None]) -> None:
        """Tell somebody whenever others are in force than before."""
        self._listener = listener

    async def refresh(self) -> None:
        """Look at the store now; for whoever has just changed it."""
        with self._guarded:
            self._read = tuple(await asyncio.wrap_future(self._worker.submit(lambda: self._store().list_overrides())))
        now, before = self._clock(), self._in_force
        self._in_force = tuple(each for each in self._read if each.holds(now))
        if self._in_force != before and self._listener is not None:
            self._listener()
        self._looked.set()

    async def ready(self, patience: float) -> None:
        """Wait at most `patience` seconds for the first look at the store."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._looked.wait()

    async def follow(self) -> None:
        """Look at the store again and again until this is cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(self._pause)
