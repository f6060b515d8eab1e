"""A stream of server-sent events to one client."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from riglm.adapters.mcp.wire.sse import encode_event
from riglm.domain.jsonrpc import Message
from riglm.ports.upstream import EventMark, Stream

Send = Callable[[dict[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

QUIET_SECONDS: Final = 15.0
"""Seconds without an event after which a stream gets a comment, so that no intermediary closes it."""

STREAM_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)

PING: Final = b": ping\n\n"
"""What a stream says when there is nothing to say."""


class Events(Stream):
    """A stream of events; what the client does not read in time is kept up to a limit."""

    def __init__(self, limit: int, cut: Callable[[], None] = lambda: None) -> None:
        """A stream without a reader yet.

        When more comes while `limit` bytes wait already, all that waits is dropped and `cut` is called, once, to break
        the connection: the client must not take what it got for the whole.
        """
        self._limit = limit
        self._cut = cut
        self._parts: list[bytes] = []
        self._size = 0
        self._ended = False
        self._wake: asyncio.Future[None] | None = None
        self._last = time.monotonic()

    @property
    def is_open(self) -> bool:
        """Whether more can be put in."""
        return not self._ended

    def put(self, data: bytes) -> None:
        """Append raw event bytes."""
        if self._ended:
            return
        if self._size > self._limit:
            self._parts.clear()
            self.ended()
            self._cut()
            return
        self._parts.append(data)
        self._size += len(data)
        self._notify()

    def continued(self, message: Message, event: EventMark | None = None) -> None:
        """Append a message."""
        self.put(encode_message(message, event))

    def primed(self, event: EventMark) -> None:
        """Append a place."""
        self.put(encode_event(b"", id=event.id, retry_ms=event.retry_ms))

    def ended(self) -> None:
        """No more will come."""
        self._ended = True
        self._notify()

    def ping(self, now: float) -> None:
        """Say something if nothing was said for a while."""
        if now - self._last >= QUIET_SECONDS and not self._parts:
            self.put(PING)

    async def run(self, send: Send, extra: Iterable[Header] = ()) -> None:
        """Send all that is put in until the end."""
        await send({"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *extra]})
        while True:
            parts, self._parts, self._size = self._parts, [], 0
            if parts:
                self._last = time.monotonic()
                await send({"type": "http.response.body", "body": b"".join(parts), "more_body": True})
            elif self._ended:
                break
            else:
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
        await send({"type": "http.response.body", "body": b""})

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def encode_message(message: Message, event: EventMark | None = None) -> bytes:
    """A message as an event."""
    if event is None:
        return encode_event(message.line)
    return encode_event(message.line, id=event.id, retry_ms=event.retry_ms)
