"""Resumable streams in front of servers that have none: riglm names the places, and keeps what may be asked for again.

A client of a revision that knows how to take up a lost stream gets every answer as an event stream that begins with a
priming event. What is said while the request is under way is kept, and so is an answer that did not reach its client,
up to a limit for each session. A stream that was delivered whole leaves nothing behind.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from riglm.adapters.mcp.downstream.answer import STREAM_HEADERS, Events, Extra, HttpResponse, Send, no_extra, send_whole
from riglm.adapters.mcp.downstream.http_request import DisconnectWatcher, McpHttpRequest
from riglm.adapters.mcp.wire.event_stream import encode_event
from riglm.domain.jsonrpc import Message
from riglm.ports.upstream import EventPosition

MAX_KEPT: Final = 1 << 20
"""Maximum bytes of events kept for a session; the oldest are removed first."""

RETRY_MS: Final = 1000
"""How long a client should wait before it takes up a stream."""

SOON: Final = 0.05
"""Seconds within which a response is sent in one piece with its priming event."""

ONE_PIECE: Final = 1 << 16
"""A longer answer is kept until it was delivered, since its connection may break in the middle."""

_MAX_PLACE_LENGTH: Final = 9


class EventStore:
    """The events of one session's streams that can be replayed."""

    __slots__ = ("_kept", "_last", "_limit", "_size")

    def __init__(self, limit: int = MAX_KEPT) -> None:
        """An empty log of at most `limit` bytes."""
        self._limit = limit
        self._kept: dict[bytes, ResumableSseResponse] = {}
        self._last = 0
        self._size = 0

    @property
    def size(self) -> int:
        """The bytes kept."""
        return self._size

    def __len__(self) -> int:
        return len(self._kept)

    def answer(self, buffer: int, cut: Callable[[], None]) -> "ResumableSseResponse":
        """A new stream; `buffer` bounds what waits for its client, `cut` breaks the connection of one over it."""
        self._last += 1
        return ResumableSseResponse(self, b"%d" % self._last, buffer, cut)

    def find(self, event_id: bytes) -> "tuple[ResumableSseResponse, int] | None":
        """Return the stream of this event and its place there; None if its successors are no longer kept."""
        number, _, place = event_id.partition(b"-")
        answer = self._kept.get(number)
        if answer is None or not place.isdigit() or len(place) > _MAX_PLACE_LENGTH:
            return None
        return (answer, int(place)) if answer.has_more(int(place)) else None

    def keep(self, answer: "ResumableSseResponse") -> None:
        """Keep what a stream says from now on."""
        self._kept[answer.number] = answer

    def grew(self, size: int) -> None:
        """Count bytes that were added to a stream that is kept; remove old events if there are too many."""
        self._size += size
        for answer in list(self._kept.values()) if self._size > self._limit else ():
            while self._size > self._limit and answer.events:
                self._size -= len(answer.events.popleft()[1])
            if answer.done and not answer.events:
                del self._kept[answer.number]

    def drop(self, answer: "ResumableSseResponse") -> None:
        """Forget a stream."""
        if self._kept.pop(answer.number, None) is not None:
            self._size -= sum(len(data) for _, data in answer.events)
            answer.events.clear()


class ResumableSseResponse(HttpResponse):
    """The answer to one POST, as a stream that can be taken up.

    `events` are those still kept, each with its place; `done` is True if the response is among them, or will never
    come.
    """

    __slots__ = (
        "_begun",
        "_buffer",
        "_cut",
        "_log",
        "_place",
        "_reader",
        "_reply",
        "_settled",
        "done",
        "events",
        "number",
    )

    def __init__(self, log: EventStore, number: bytes, buffer: int, cut: Callable[[], None]) -> None:
        self.number = number
        self.done = False
        self.events: deque[tuple[int, bytes]] = deque()
        self._log = log
        self._buffer = buffer
        self._cut = cut
        self._place = 0
        self._reader: Events | None = None
        self._reply: Message | None = None
        loop = asyncio.get_running_loop()
        self._begun: asyncio.Future[None] = loop.create_future()
        self._settled: asyncio.Future[None] | None = None

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        if not self.done:
            self._say(message)

    def primed(self, event: EventPosition) -> None:
        """The server names no places that mean anything to the client."""

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        if self.done:
            return
        self.done = True
        if self._reader is None:
            self._reply = message
            self._begin()
        else:
            self._say(message)
        self._settle()

    def interrupted(self) -> None:
        if not self.done:
            self.done = True
            self._stream()
            self._settle()
            self._log.drop(self)

    def ping(self, now: float) -> None:
        if self._reader is not None:
            self._reader.ping(now)

    def has_more(self, place: int) -> bool:
        """Whether anything after this place is kept or still to come."""
        return not self.done or (bool(self.events) and self.events[-1][0] > place)

    def resume(self, place: int, events: Events) -> None:
        """Go on in another stream, after the given place; the client has given up the one before."""
        if self._reader is not None:
            self._reader.ended()
        self._reader = events
        events.put(b"".join([data for number, data in self.events if number > place]))
        if self.done:
            events.ended()

    def delivered(self, events: Events, *, left: bool) -> None:
        """A stream of it came to its end, because the client `left` or there is no more."""
        if self.done and not left and self._reader is events:
            self._log.drop(self)

    async def run(self, request: McpHttpRequest, send: Send, extra: Extra = no_extra) -> None:
        if not self._begun.done():
            timer = asyncio.get_running_loop().call_later(SOON, self._prime)
            try:
                await self._begun
            finally:
                timer.cancel()
        if self._reader is None and self._reply is not None:
            if len(self._reply.line) <= ONE_PIECE:
                whole = _primer(self.number) + self._event(self._reply, 1)
                await send_whole(send, 200, whole, (*STREAM_HEADERS, *extra(self._reply)))
                return
            self._say(self._reply)
            self._stream().ended()
        await self._deliver(request, send, extra)

    async def _deliver(self, request: McpHttpRequest, send: Send, extra: Extra) -> None:
        events = self._stream()
        with DisconnectWatcher(request, events.ended) as watch:
            await events.run(send, extra(self._reply))
            left = watch.is_disconnected
        if not self.done:
            self._settled = asyncio.get_running_loop().create_future()
            await self._settled
        else:
            self.delivered(events, left=left)

    def _prime(self) -> None:
        """Begin the stream, unless the reply came while this was due: it goes out in one piece then."""
        if not self._begun.done():
            self._stream()

    def _stream(self) -> Events:
        if self._reader is None:
            self._reader = Events(self._buffer, self._cut)
            self._reader.put(_primer(self.number))
            self._log.keep(self)
            self._begin()
        return self._reader

    def _say(self, message: Message) -> None:
        reader = self._stream()
        self._place += 1
        data = self._event(message, self._place)
        self.events.append((self._place, data))
        reader.put(data)
        self._log.grew(len(data))

    def _event(self, message: Message, place: int) -> bytes:
        return encode_event(message.line, id=b"%b-%d" % (self.number, place))

    def _begin(self) -> None:
        if not self._begun.done():
            self._begun.set_result(None)

    def _settle(self) -> None:
        if self._reader is not None:
            self._reader.ended()
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)


def _primer(number: bytes) -> bytes:
    return encode_event(b"", id=b"%b-0" % number, retry_ms=RETRY_MS)
