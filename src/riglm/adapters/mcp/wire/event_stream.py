"""Server-sent events: the parser of the WHATWG's rules, over bytes, and the encoder."""

from collections.abc import Callable
from typing import NamedTuple

from riglm.adapters.mcp.wire.messages import ChunkBuffer
from riglm.domain import jsonrpc
from riglm.domain.errors import RiglmError

BOM = b"\xef\xbb\xbf"
DIGITS = 15
"""A retry of more digits is no usable time, and is ignored."""

_DEFAULT = ((b"event: message\r\ndata: ", b"\r\n\r\n"), (b"event: message\ndata: ", b"\n\n"), (b"data: ", b"\n\n"))


class EventTooLargeError(RiglmError):
    """One event of a stream is larger than the limit; the stream cannot be read on."""


class Event(NamedTuple):
    """One event as it came.

    An event with an id or a retry but no data (a priming event) has empty data; it is reported, where a browser would
    only take note of it.
    """

    name: str
    """The `event` field, "message" when there is none."""
    data: bytes
    """The `data` lines joined by LF, as the bytes that came."""
    id: bytes | None
    """The `id` field of this very event; None when it has none, empty when it takes back the last one."""
    retry_ms: int | None
    """The `retry` field: milliseconds to wait before reconnecting."""


class EventParser:
    """Turns the bytes of an event stream, in any pieces, into events.

    Lines end with LF, CR or CRLF; comments and unknown fields are ignored; an id with a NUL and a retry that is not
    all digits are ignored; what follows the last blank line is no event. Time is linear, and memory stays within
    the limit.

    Args:
        on_event: gets each event when its blank line has come.
        limit: the most bytes of one event (all its lines without their endings) and of one comment.
    """

    __slots__ = ("_after_cr", "_data", "_held", "_id", "_limit", "_name", "_on_event", "_opening", "_retry_ms", "_size")

    def __init__(self, on_event: Callable[[Event], None], limit: int) -> None:
        self._on_event = on_event
        self._limit = limit
        self._opening: bytes | None = b""
        self._held = ChunkBuffer()
        self._after_cr = False
        self._start_event()

    def feed(self, data: bytes) -> None:
        """Take the next bytes; calls back for each event that they complete.

        Raises:
            EventTooLargeError: one event or comment is over the limit. The parser is of no use afterwards.
        """
        if not data:
            return
        if self._opening is not None:
            data = self._without_bom(data)
        if self._after_cr:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data and (self._size or self._held.size or not self._usual(data)):
            self._split(data)

    def _start_event(self) -> None:
        self._name = b""
        self._data: list[bytes] = []
        self._id: bytes | None = None
        self._retry_ms: int | None = None
        self._size = 0

    def _without_bom(self, data: bytes) -> bytes:
        data = (self._opening or b"") + data
        if len(data) < len(BOM) and BOM.startswith(data):
            self._opening = data
            return b""
        self._opening = None
        return data.removeprefix(BOM)

    def _usual(self, data: bytes) -> bool:
        """Report the event if the data is just one of the usual shape: faster, with the same result."""
        if len(data) > self._limit:
            return False
        for start, end in _DEFAULT:
            if data.startswith(start) and data.endswith(end):
                first, stop = len(start), len(data) - len(end)
                if data.find(b"\n", first, stop) >= 0 or data.find(b"\r", first, stop) >= 0 or stop < first:
                    return False
                self._on_event(Event("message", data[first:stop], None, None))
                return True
        return False

    def _split(self, data: bytes) -> None:
        self._after_cr = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = self._held.take(whole[0])
            for line in whole:
                self._line(line)
        if rest:
            self._held.add(rest)
            self._check(self._held.size)

    def _check(self, more: int) -> None:
        if self._size + more > self._limit:
            raise EventTooLargeError(f"An event of the stream is over the limit of {self._limit} bytes")

    def _line(self, line: bytes) -> None:
        if not line:
            self._dispatch()
            return
        self._check(len(line))
        if line.startswith(b":"):
            return
        self._size += len(line)
        if line.startswith(b"data: "):  # the large ones are copied once
            self._data.append(line[6:])
        else:
            field, _, value = line.partition(b":")
            self._field(field, value.removeprefix(b" "))

    def _field(self, field: bytes, value: bytes) -> None:
        match field:
            case b"data":
                self._data.append(value)
            case b"event":
                self._name = value
            case b"id" if b"\0" not in value:
                self._id = value
            case b"retry" if value.isdigit() and len(value) <= DIGITS:
                self._retry_ms = int(value)
            case _:
                pass

    def _dispatch(self) -> None:
        name, data, event_id, retry_ms = self._name, self._data, self._id, self._retry_ms
        self._start_event()
        if data or event_id is not None or retry_ms is not None:
            whole = data[0] if len(data) == 1 else b"\n".join(data)
            self._on_event(Event(name.decode(errors="replace") or "message", whole, event_id, retry_ms))


def unwrap(data: bytes) -> bytes:
    """Return the message in an event's data, which some servers begin with a BOM or send as a batch of one."""
    data = data.removeprefix(BOM)
    found = jsonrpc.elements(data) if data.lstrip().startswith(b"[") else ()
    return bytes(found[0]) if len(found) == 1 else data


def encode_event(data: bytes, *, id: bytes | None = None, retry_ms: int | None = None) -> bytes:  # noqa: A002 - the field's own name
    """Return one `message` event as bytes; line endings inside the data become LF, each in a separate `data` line.

    Raises:
        ValueError: the id has a line ending or a NUL in it, or the retry is negative.
    """
    head = b"event: message\n"
    if id is not None:
        if b"\n" in id or b"\r" in id or b"\0" in id:
            raise ValueError("An event's id cannot hold a line ending or a NUL")
        head += b"id: %b\n" % id
    if retry_ms is not None:
        if retry_ms < 0:
            raise ValueError("An event's retry is a number of milliseconds, not negative")
        head += b"retry: %d\n" % retry_ms
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"\n" in data:
        data = data.replace(b"\n", b"\ndata: ")
    return b"%bdata: %b\n\n" % (head, data)
