"""Tells a client that lists changed, once for changes that come close together."""

import asyncio
from collections.abc import Callable
from typing import Final

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message

COALESCE_SECONDS: Final = 0.25
"""Changes that come within this time of the first are announced together with it."""

CHANGED: Final = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
"""Which lists each notification is about."""

ANNOUNCEMENT: Final = {method: note for note, methods in CHANGED.items() for method in methods}
"""Which notification says that a list changed."""


class Announcer:
    """Collects changes and announces each kind of them at most once in a while."""

    def __init__(self, tell: Callable[[Message], None]) -> None:
        """`tell` takes the notification to the client."""
        self._tell = tell
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def announce(self, note: str) -> None:
        """Tell soon, unless that is going to happen anyway."""
        if note not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[note] = loop.call_later(COALESCE_SECONDS, self._announced, note)

    def close(self) -> None:
        """Tell nothing more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _announced(self, note: str) -> None:
        del self._timers[note]
        self._tell(jsonrpc.notification(note))
