"""Resumable streams: riglm gives events ids, and keeps what a client may ask for again after its stream broke.

What is sent before the response of a request is kept, and so is a response that did not reach its client, and what the
stream for server messages carried, up to a limit for each session. A stream that was delivered whole leaves nothing
behind. Clients of a revision that allows it get a priming event first, from which they can resume at once.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from riglm.adapters.mcp.downstream.answer import (
    STREAM_HEADERS,
    Events,
    Extra,
    JsonOrSseResponse,
    Send,
    no_extra,
    send_json,
    send_whole,
)
from riglm.adapters.mcp.downstream.http_request import DisconnectWatcher, McpHttpRequest
from riglm.adapters.mcp.wire.event_stream import encode_event
from riglm.domain.jsonrpc import Message

MAX_KEPT: Final = 1 << 20
"""Maximum bytes of events kept for a session; the oldest are removed first."""

RETRY_MS: Final = 1000
"""Milliseconds after which a client should resume a stream."""

SOON: Final = 0.05
"""Seconds within which a response is sent in one piece with its priming event."""

ONE_PIECE: Final = 1 << 16
"""A longer response is kept until it was delivered, since its connection may break in the middle."""

_MAX_PLACE_LENGTH: Final = 9


class EventLog:
    """The streams of one session whose events can be sent again."""

    __slots__ = ("_kept", "_last", "_limit", "_size")

    def __init__(self, limit: int = MAX_KEPT) -> None:
        """An empty log of at most `limit` bytes."""
        self._limit = limit
        self._kept: dict[bytes, LoggedStream] = {}
        self._last = 0
        self._size = 0

    @property
    def size(self) -> int:
        """The bytes kept."""
        return self._size

    def __len__(self) -> int:
        return len(self._kept)

    def create(self, *, carries_server_messages: bool = False) -> "LoggedStream":
        """Return a new stream, which is kept from its first event on."""
        self._last += 1
        return LoggedStream(self, b"%d" % self._last, carries_server_messages=carries_server_messages)

    def find(self, event_id: bytes) -> "tuple[LoggedStream, int] | None":
        """Return the stream of this event and its place there; None if its successors are no longer kept."""
        number, _, place = event_id.partition(b"-")
        stream = self._kept.get(number)
        if stream is None or not place.isdigit() or len(place) > _MAX_PLACE_LENGTH:
            return None
        return (stream, int(place)) if stream.has_more(int(place)) else None

    def keep(self, stream: "LoggedStream", size: int) -> None:
        """Keep a stream to which bytes were added; remove old events if there are too many."""
        self._kept[stream.number] = stream
        self._size += size
        for each in list(self._kept.values()) if self._size > self._limit else ():
            while self._size > self._limit and each.events:
                self._size -= len(each.events.popleft()[1])
            if each.is_complete and not each.events:
                del self._kept[each.number]

    def drop(self, stream: "LoggedStream") -> None:
        """Forget a stream."""
        if self._kept.pop(stream.number, None) is not None:
            self._size -= sum(len(data) for _, data in stream.events)
            stream.events.clear()


class LoggedStream:
    """A stream whose events are kept, each with its place. `is_complete` is True if none will be added."""

    __slots__ = ("_log", "_place", "carries_server_messages", "events", "is_complete", "number", "reader")

    def __init__(self, log: EventLog, number: bytes, *, carries_server_messages: bool) -> None:
        self.number = number
        self.carries_server_messages = carries_server_messages
        self.is_complete = False
        self.events: deque[tuple[int, bytes]] = deque()
        self.reader: Events | None = None
        """What the client reads at the moment."""
        self._log = log
        self._place = 0

    @property
    def primer(self) -> bytes:
        """An event without a message, from which a client can resume."""
        return encode_event(b"", id=b"%b-%d" % (self.number, self._place), retry_ms=RETRY_MS)

    def add(self, message: Message) -> None:
        """Add a message, which its reader gets."""
        data = self.next_event(message)
        self.events.append((self._place, data))
        if self.reader is not None:
            self.reader.put(data)
        self._log.keep(self, len(data))

    def next_event(self, message: Message) -> bytes:
        """Return a message as the next event, which is not kept."""
        self._place += 1
        return encode_event(message.line, id=b"%b-%d" % (self.number, self._place))

    def open(self, reader: Events) -> None:
        """Let a client read the stream from here on, and keep it."""
        self.reader = reader
        self._log.keep(self, 0)

    def complete(self) -> None:
        """Nothing will be added any more."""
        self.is_complete = True
        if self.reader is not None:
            self.reader.ended()

    def has_more(self, place: int) -> bool:
        """Whether anything after this place is kept or still to come."""
        return not self.is_complete or (bool(self.events) and self.events[-1][0] > place)

    def resume(self, place: int, reader: Events) -> None:
        """Send a reader what comes after a place; the client has given up the reader before."""
        if self.reader is not None:
            self.reader.ended()
        self.reader = reader
        reader.put(b"".join([data for number, data in self.events if number > place]))
        if self.is_complete:
            reader.ended()

    def pause(self, retry_ms: int) -> None:
        """End the stream for now: its client resumes it after this time."""
        if self.reader is not None and not self.is_complete:
            self.reader.put(encode_event(b"", id=b"%b-%d" % (self.number, self._place), retry_ms=retry_ms))
            self.reader.ended()

    def leave(self, reader: Events, *, is_disconnected: bool) -> None:
        """A reader came to its end; a stream that was delivered whole is forgotten."""
        if self.is_complete and not is_disconnected and self.reader is reader:
            self.drop()

    def drop(self) -> None:
        """Forget all events."""
        self._log.drop(self)


class ResumableSseResponse(JsonOrSseResponse):
    """The response to one POST, as a stream that can be resumed.

    Without `is_primed` it is JSON when nothing precedes the response: the client knows no priming events.
    """

    __slots__ = ("_is_primed", "_settled", "_stream")

    def __init__(self, log: EventLog, buffer: int, cut: Callable[[], None], *, is_primed: bool) -> None:
        """`buffer` bounds what waits for the client in bytes, `cut` breaks the connection of one over it."""
        super().__init__(buffer, cut)
        self._stream = log.create()
        self._is_primed = is_primed
        self._settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def events(self) -> Events | None:
        return self._stream.reader

    def related(self, message: Message) -> None:
        if not self._stream.is_complete:
            self._open()
            self._stream.add(message)

    def paused(self, retry_ms: int) -> None:
        if self._is_primed or self._stream.reader is not None:
            self._open()
            self._stream.pause(retry_ms)

    def replied(self, message: Message, status: int = 200) -> None:
        if self._stream.is_complete:
            return
        self._stream.is_complete = True
        if self._stream.reader is None:
            self._reply, self._status = message, status
            self._begin()
        else:
            self._stream.add(message)
        self._settle()

    def interrupted(self) -> None:
        if not self._stream.is_complete:
            self._open()
            self._settle()
            self._stream.drop()

    async def run(self, request: McpHttpRequest, send: Send, extra: Extra = no_extra) -> None:
        if not self._begun.done():
            timer = asyncio.get_running_loop().call_later(SOON, self._prime)
            try:
                await self._begun
            finally:
                timer.cancel()
        reply, stream = self._reply, self._stream
        if reply is not None and not self._is_primed:
            await send_json(send, self._status, reply.line, extra(reply))
            return
        if reply is not None and len(reply.line) <= ONE_PIECE:
            primer = stream.primer
            await send_whole(send, 200, primer + stream.next_event(reply), (*STREAM_HEADERS, *extra(reply)))
            return
        reader = self._open()
        if reply is not None:
            stream.add(reply)
            reader.ended()
        with DisconnectWatcher(request, reader.ended) as watch:
            await reader.run(send, extra(reply))
            is_disconnected = watch.is_disconnected
        await self._settled
        stream.leave(reader, is_disconnected=is_disconnected)

    def _prime(self) -> None:
        """Open the stream, unless the reply came while this was due: it goes out in one piece then."""
        if self._is_primed and not self._begun.done():
            self._open()

    def _open(self) -> Events:
        reader = self._stream.reader
        if reader is None:
            reader = Events(self._limit, self._cut)
            if self._is_primed:
                reader.put(self._stream.primer)
            self._stream.open(reader)
            self._begin()
        return reader

    def _settle(self) -> None:
        self._stream.complete()
        if not self._settled.done():
            self._settled.set_result(None)
