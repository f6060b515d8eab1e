"""Reading again and again what other processes change in the store."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Final

FOLLOW_SECONDS: Final = 2.0
"""Seconds after which the store is read again."""

_PAUSE_RATIO: Final = 20
"""How many times longer than a reading the pause after it is at least."""


class StoreFollower:
    """Has its readers read the store, one after the other, until the task of `follow` is cancelled."""

    def __init__(self, *readers: Callable[[], Awaitable[None]]) -> None:
        """A reader reads the store on a different thread, and handles failures."""
        self._readers = readers
        self._is_read = asyncio.Event()

    async def follow(self) -> None:
        while True:
            began = time.monotonic()
            for read in self._readers:
                await read()
            self._is_read.set()
            await asyncio.sleep(max(FOLLOW_SECONDS, _PAUSE_RATIO * (time.monotonic() - began)))

    async def ready(self, timeout_seconds: float) -> None:
        """Wait at most `timeout_seconds` seconds until all readers have read once."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._is_read.wait()
