"""Debounced list-changed notifications to a client."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import ClientChannel
from riglm.ports.upstream import EventPosition

COALESCE_SECONDS: Final = 0.25
"""Changes that come within this time of the first are announced together with it."""

CHANGED: Final = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
"""Which lists each notification is about."""

ANNOUNCEMENT: Final = {method: note for note, methods in CHANGED.items() for method in methods}
"""List-changed notifications by list method."""


class DebouncedNotifier:
    """Collects changes and announces each kind of them at most once in a while."""

    def __init__(self, notify: Callable[[Message], None]) -> None:
        """`send` sends the notification to the client."""
        self._notify = notify
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def announce(self, note: str) -> None:
        """Send soon, unless a notification is already scheduled."""
        if note not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[note] = loop.call_later(COALESCE_SECONDS, self._announced, note)

    def close(self) -> None:
        """Stop sending."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _announced(self, note: str) -> None:
        del self._timers[note]
        self._notify(jsonrpc.notification(note))


MAX_HELD_BACK: Final = 256
"""Maximum number of messages held for a client without an open stream; the oldest are dropped first."""

MAX_BYTES: Final = 1 << 20
"""Maximum bytes of held messages, except for a single larger one."""

_log: Final = logging.getLogger("riglm.proxy")


class HeldMessages:
    """Messages for a client that has no open stream at the moment."""

    __slots__ = ("_bytes", "_channel", "_has_dropped", "_waiting")

    def __init__(self, channel: ClientChannel) -> None:
        self._channel = channel
        self._waiting: deque[tuple[Message, EventPosition | None]] | None = None
        """None when nothing waits: an empty deque is large, and there may be very many idle clients."""
        self._bytes = 0
        self._has_dropped = False

    def __len__(self) -> int:
        return len(self._waiting or ())

    def push(self, message: Message, event: EventPosition | None = None) -> bool:
        """Hand a message over now if a stream is open."""
        return self._channel.push(message, event)

    def keep(self, message: Message, event: EventPosition | None = None) -> None:
        """Keep a message until a stream opens."""
        waiting = self._waiting = self._waiting or deque()
        waiting.append((message, event))
        self._bytes += len(message.line)
        while len(waiting) > MAX_HELD_BACK or (self._bytes > MAX_BYTES and len(waiting) > 1):
            self._take(waiting)
            if not self._has_dropped:
                self._has_dropped = True
                _log.warning("dropped what a client did not listen to; this is said once for each client")

    def flush(self) -> None:
        """Hand over what was kept."""
        while self._waiting and self._channel.push(*self._waiting[0]):
            self._take(self._waiting)
        self._waiting = self._waiting or None

    def _take(self, waiting: deque[tuple[Message, EventPosition | None]]) -> None:
        message, _ = waiting.popleft()
        self._bytes -= len(message.line)
