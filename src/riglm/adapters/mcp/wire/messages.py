"""Messages from bytes: a stream split into lines, and messages decoded in the order in which they came."""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable
from io import BytesIO
from typing import Final

from riglm.domain import jsonrpc, request_params
from riglm.domain.jsonrpc import MalformedMessageError, Message
from riglm.domain.rawjson import EDGE

LONG_BYTES: Final = 1 << 20
"""Minimum size of a message that is decoded in a thread, so that other clients need not wait for it."""

_MIN_KNOWN_BYTES: Final = 1 << 16
"""Minimum size of a result that is kept, to recognize it by its bytes."""

_MAX_ID_BYTES: Final = 64
_HEAD: Final = re.compile(
    rb'\{"jsonrpc": ?"2\.0", ?"id": ?([0-9]{1,%d}|"[\w-]{1,%d}"), ?"result": ?' % (_MAX_ID_BYTES, _MAX_ID_BYTES - 2)
)

Decoded = Message | MalformedMessageError

_log: Final = logging.getLogger("riglm.wire")


class ChunkBuffer:
    """Pieces of one run of bytes. Neither adding nor taking copies what was added before, however long it is."""

    __slots__ = ("_gathered", "size")

    def __init__(self) -> None:
        self._gathered: BytesIO | None = None
        self.size = 0
        """Bytes added since the last `take`."""

    def add(self, piece: bytes) -> None:
        """Keep a piece."""
        if self._gathered is None:
            self._gathered = BytesIO()
        self._gathered.write(piece)
        self.size += len(piece)

    def take(self, last: bytes) -> bytes:
        """Return everything added, with `last` at its end; what was gathered is forgotten."""
        if self._gathered is None:
            return last
        self._gathered.write(last)
        whole = self._gathered.getvalue()
        self._gathered = None
        self.size = 0
        return whole


class LineSplitter:
    r"""Cuts a stream of bytes into lines of any size, in linear time and bounded memory.

    A line ends at LF; a CR before it is dropped; blank lines (nothing but white space) are skipped. A line of more than
    `limit` bytes (its CR counted) is skipped up to its newline without being kept, and framing goes on after it.

    Args:
        on_line: gets each line without its ending. It must not raise: the rest of its chunk would be lost.
        on_overflow: gets the size in bytes of each line that was over the limit, once, when that line ends, with its
            first and its last `EDGE` bytes.
        limit: the most bytes of one line.
    """

    __slots__ = ("_head", "_held", "_limit", "_on_line", "_on_overflow", "_skipped", "_tail")

    def __init__(
        self, on_line: Callable[[bytes], None], on_overflow: Callable[[int, bytes, bytes], None], limit: int
    ) -> None:
        self._on_line = on_line
        self._on_overflow = on_overflow
        self._limit = limit
        self._held = ChunkBuffer()
        self._skipped = 0
        self._head = self._tail = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes; calls back for each line that they complete."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._held.size or self._skipped or len(line) > self._limit:
                line = self._complete(line)  # noqa: PLW2901
            if line.endswith(b"\r"):
                line = line[:-1]  # noqa: PLW2901
            if line and not line.isspace():
                self._on_line(line)
        if rest:
            if self._skipped + self._held.size + len(rest) > self._limit:
                self._skip(rest)
            else:
                self._held.add(rest)

    def end(self) -> None:
        """The stream is over, which ends its last line as a newline would."""
        self.feed(b"\n")

    def _complete(self, last: bytes) -> bytes:
        """Return a line that came in pieces; nothing if it is over the limit, which is reported."""
        if self._skipped + self._held.size + len(last) <= self._limit:
            return self._held.take(last)
        self._skip(last)
        size, self._skipped = self._skipped, 0
        self._on_overflow(size, self._head, self._tail)
        return b""

    def _skip(self, part: bytes) -> None:
        """Keep only the first and the last bytes of a line over the limit."""
        if not self._skipped:
            part = self._held.take(part)
            self._head = self._tail = b""
        self._skipped += len(part)
        self._head += part[: EDGE - len(self._head)]
        self._tail = (self._tail + part[-EDGE:])[-EDGE:]


def well_formed(line: bytes) -> bytes:
    """Return the line itself when it is valid UTF-8, else a copy that is.

    Each invalid sequence (the longest start of a character that cannot go on, or one stray byte) becomes one U+FFFD, as
    Unicode recommends and browsers do; every other byte stays as it is.
    """
    try:
        line.decode()
    except UnicodeDecodeError:
        return line.decode(errors="replace").encode()
    return line


def decode(data: bytes) -> Decoded:
    """Return the message of a line, an event or a body, or the reason why it is none."""
    try:
        return jsonrpc.decode(data if data.isascii() else well_formed(data))
    except MalformedMessageError as error:
        return error


def _decode_long(data: bytes) -> Decoded:
    """Decode a long message, and parse what the event loop would parse later: its params, or `isError` of a result."""
    decoded = decode(data)
    if isinstance(decoded, Message):
        (jsonrpc.is_tool_error if decoded.is_response else request_params.read)(decoded)
    return decoded


async def decode_any(data: bytes) -> Decoded:
    """Decode a message, a long one in a thread."""
    return decode(data) if len(data) < LONG_BYTES else await asyncio.to_thread(_decode_long, data)


class _LastResult:
    """The last long result of a peer. Lists come again and again, and need not be decoded if their bytes are equal."""

    __slots__ = ("_message", "_start", "_tail")

    def __init__(self) -> None:
        self._message: Message | None = None
        self._start = 0
        self._tail = b""

    def remember(self, message: Message, data: bytes) -> None:
        """Keep a long result that follows its id."""
        if len(data) < _MIN_KNOWN_BYTES or message.line is not data:
            return
        head = _HEAD.match(data)
        if head is not None and message.id == head[1] and message.result and not message.error:
            self._message, self._start, self._tail = message, head.end(), b""

    def recognize(self, data: bytes) -> Message | None:
        """Return a message with the last result, the same object; None if it differs."""
        last = self._message
        if last is None or abs(len(data) - len(last.line)) > _MAX_ID_BYTES:
            return None
        head = _HEAD.match(data)
        if head is None or len(data) - head.end() != len(last.line) - self._start:
            return None
        self._tail = self._tail or last.line[self._start :]
        if not data.endswith(self._tail):
            return None
        message = Message(data, head[1], None, result=last.result)
        message.is_tool_error, message.next_cursor = last.is_tool_error, last.next_cursor
        return message


class MessageDecoder:
    """Decodes the messages of one peer. While a long one is in the thread, it pauses the peer and keeps the order."""

    __slots__ = ("_is_closed", "_last_result", "_on_end", "_on_malformed", "_pause", "_task", "_waiting", "on_message")

    def __init__(
        self,
        on_message: Callable[[Message], None],
        on_malformed: Callable[[MalformedMessageError, bytes], None],
        pause: Callable[[bool], None],
    ) -> None:
        """Create a decoder for one peer.

        Args:
            on_message: called with each message.
            on_malformed: called with each run of bytes that is no message, and the reason.
            pause: called with True to read nothing more from the peer, and with False to resume.
        """
        self.on_message = on_message
        self._on_malformed = on_malformed
        self._pause = pause
        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[bytes] = deque()
        self._on_end: Callable[[], None] | None = None
        self._is_closed = False
        self._last_result = _LastResult()

    def feed(self, data: bytes) -> None:
        """Decode and deliver a message, at once if it is short and no long one comes before it."""
        if len(data) >= _MIN_KNOWN_BYTES or self._task is not None or self._is_closed:
            self._feed_long(data)
            return
        try:
            message = jsonrpc.decode(data if data.isascii() else well_formed(data))
        except MalformedMessageError as error:
            self._deliver(error, data)
            return
        try:
            self.on_message(message)
        except Exception:  # noqa: BLE001  # a message must not take those behind it along
            _log.exception("a message failed inside riglm")

    def end(self, on_end: Callable[[], None]) -> None:
        """Call `on_end` once all messages are delivered."""
        if self._task is None:
            on_end()
        else:
            self._on_end = on_end

    def close(self) -> None:
        """Deliver nothing more."""
        self._is_closed = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    def _feed_long(self, data: bytes) -> None:
        if self._is_closed:
            return
        if self._task is not None:
            self._waiting.append(data)
        elif (known := self._last_result.recognize(data)) is not None:
            self._deliver(known, data)
        elif len(data) < LONG_BYTES:
            self._deliver(decode(data), data)
        else:
            self._waiting.append(data)
            self._pause(True)
            self._task = asyncio.get_running_loop().create_task(self._deliver_waiting())

    def _deliver(self, decoded: Decoded, data: bytes) -> None:
        try:
            if isinstance(decoded, Message):
                self._last_result.remember(decoded, data)
                self.on_message(decoded)
            else:
                self._on_malformed(decoded, data)
        except Exception:  # noqa: BLE001  # a message must not take those behind it along
            _log.exception("a message failed inside riglm")

    async def _deliver_waiting(self) -> None:
        while self._waiting:
            data = self._waiting.popleft()
            self._deliver(await decode_any(data), data)
        self._task = None
        on_end, self._on_end = self._on_end, None
        self._pause(False)
        if on_end is not None:
            on_end()
