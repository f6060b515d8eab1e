"""What goes back over HTTP: one JSON message, or a stream of events."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from riglm.adapters.mcp.downstream.http_request import McpHttpRequest
from riglm.adapters.mcp.wire.event_stream import encode_event
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import ClientResponseSink

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


class Events:
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

    def ended(self) -> None:
        """End the stream once all that waits is sent."""
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


STATUS_OF: Final[Mapping[int, int]] = {
    jsonrpc.PARSE_ERROR: 400,
    jsonrpc.INVALID_REQUEST: 400,
    jsonrpc.INVALID_PARAMS: 400,
    jsonrpc.HEADER_MISMATCH: 400,
    -32021: 400,
    jsonrpc.UNSUPPORTED_PROTOCOL_VERSION: 400,
    jsonrpc.METHOD_NOT_FOUND: 404,
}
"""The HTTP status that the modern era gives to an error."""

Extra = Callable[[Message | None], Iterable[Header]]
"""Further headers of an answer, knowing the reply if that comes first."""


def no_extra(_: Message | None) -> Iterable[Header]:
    """No further headers."""
    return ()


async def send_json(send: Send, status: int, body: bytes, extra: Iterable[Header] = ()) -> None:
    """Send a whole JSON answer."""
    await send_whole(send, status, body, ((b"content-type", b"application/json"), *extra))


async def send_whole(send: Send, status: int, body: bytes, headers: Iterable[Header]) -> None:
    """Send an answer whose body is known."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def send_status(send: Send, status: int, extra: Iterable[Header] = ()) -> None:
    """Send an answer without a body."""
    await send_whole(send, status, b"", extra)


async def send_error(send: Send, status: int, code: int, words: str, extra: Iterable[Header] = ()) -> None:
    """Send a JSON-RPC error that belongs to no request."""
    await send_json(send, status, jsonrpc.error(None, code, words).line, extra)


class JsonOrSseResponse(ClientResponseSink):
    """The response to one POST: JSON when nothing precedes the reply, a stream of events otherwise."""

    __slots__ = ("_begun", "_born", "_cut", "_events", "_limit", "_reply", "_status", "errors_have_status")

    def __init__(self, limit: int, cut: Callable[[], None] = lambda: None, *, errors_have_status: bool = False) -> None:
        """`limit` bounds what waits for the client, `cut` breaks the connection of one that does not read.

        `errors_have_status` is how the modern era sends errors.
        """
        self.errors_have_status = errors_have_status
        self._limit = limit
        self._cut = cut
        self._events: Events | None = None
        self._reply: Message | None = None
        self._status = 200
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._born = time.monotonic()

    @property
    def events(self) -> Events | None:
        """The stream that the client reads; None before one is open."""
        return self._events

    def related(self, message: Message) -> None:
        self._open().put(encode_event(message.line))

    def replied(self, message: Message, status: int = 200) -> None:
        if self._events is not None:
            self._events.put(encode_event(message.line))
            self._events.ended()
        elif self._reply is None:
            self._reply, self._status = message, status
            self._begin()

    def interrupted(self) -> None:
        """End without a response: the client left, or cancelled the request."""
        if self._reply is None:
            self._open().ended()

    def ping(self, now: float) -> None:
        """Send a comment if nothing was sent for a while."""
        if self.events is not None:
            self.events.ping(now)
        elif not self._begun.done() and now - self._born >= QUIET_SECONDS:
            self._open().put(PING)

    async def run(self, request: McpHttpRequest, send: Send, extra: Extra = no_extra) -> None:
        """Send the response."""
        await self._begun
        if self._events is not None:
            await self._events.run(send, extra(None))
        elif self._reply is not None:
            status = self._status
            if self.errors_have_status and status == 200 and self._reply.error:
                status = STATUS_OF.get(jsonrpc.error_code(self._reply) or 0, 200)
            await send_json(send, status, self._reply.line, extra(self._reply))

    def _open(self) -> Events:
        if self._events is None:
            self._events = Events(self._limit, self._cut)
            self._begin()
        return self._events

    def _begin(self) -> None:
        if not self._begun.done():
            self._begun.set_result(None)
