"""Messages decoded in the order in which they came, long ones in a thread."""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable
from typing import Final

from riglm.adapters.mcp.wire.framing import well_formed
from riglm.domain import jsonrpc, request_params
from riglm.domain.jsonrpc import MalformedMessageError, Message

LONG_BYTES: Final = 1 << 20
"""Minimum size of a message that is decoded in a thread, so that other clients need not wait for it."""

_MIN_KNOWN_BYTES: Final = 1 << 16
"""Minimum size of a result that is kept, to recognize it by its bytes."""

_MAX_ID_DIGITS: Final = 15
_HEAD: Final = re.compile(rb'\{"jsonrpc": ?"2\.0", ?"id": ?([0-9]{1,%d}), ?"result": ?' % _MAX_ID_DIGITS)

Decoded = Message | MalformedMessageError
Deliver = Callable[[Decoded, bytes], None]
"""Called with a message, or the reason why there is none, and the bytes that it was decoded from."""

_log: Final = logging.getLogger("riglm.wire")


def decode(data: bytes) -> Decoded:
    """Return the message of a line, an event or a body, or the reason why it is none."""
    try:
        return jsonrpc.decode(well_formed(data))
    except MalformedMessageError as error:
        return error


def decode_long(data: bytes) -> Decoded:
    """Decode a long message, and parse what the event loop would parse later: its params, or `isError` of a result."""
    decoded = decode(data)
    if isinstance(decoded, Message):
        (jsonrpc.is_tool_error if decoded.is_response else request_params.read)(decoded)
    return decoded


async def decode_any(data: bytes) -> Decoded:
    """Decode a message, a long one in a thread."""
    return decode(data) if len(data) < LONG_BYTES else await asyncio.to_thread(decode_long, data)


class _LastResult:
    """The last long result of a peer. Lists come again and again, and need not be decoded if their bytes are equal."""

    __slots__ = ("_message", "_start", "_tail")

    def __init__(self) -> None:
        self._message: Message | None = None
        self._start = 0
        self._tail = b""

    def remember(self, message: Decoded, data: bytes) -> None:
        """Keep a long result that follows its id."""
        if len(data) < _MIN_KNOWN_BYTES or not isinstance(message, Message) or message.line is not data:
            return
        head = _HEAD.match(data)
        if head is not None and message.id == head[1] and message.result and not message.error:
            self._message, self._start, self._tail = message, head.end(), b""

    def recognize(self, data: bytes) -> Message | None:
        """Return a message with the last result, the same object; None if it differs."""
        last = self._message
        if last is None or abs(len(data) - len(last.line)) > _MAX_ID_DIGITS:
            return None
        head = _HEAD.match(data)
        if head is None or len(data) - head.end() != len(last.line) - self._start:
            return None
        self._tail = self._tail or last.line[self._start :]
        if not data.endswith(self._tail):
            return None
        message = Message(data, head[1], None, result=last.result)
        message.is_tool_error = last.is_tool_error
        return message


class MessageDecoder:
    """Decodes the messages of one peer. While a long one is in the thread, it pauses the peer and keeps the order."""

    __slots__ = ("_is_closed", "_last_result", "_on_end", "_pause", "_task", "_waiting")

    def __init__(self, pause: Callable[[bool], None]) -> None:
        """`pause` is called with True to read nothing more from the peer, and with False to resume."""
        self._pause = pause
        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[tuple[bytes, Deliver]] = deque()
        self._on_end: Callable[[], None] | None = None
        self._is_closed = False
        self._last_result = _LastResult()

    def feed(self, data: bytes, deliver: Deliver) -> None:
        """Decode and deliver a message, at once if it is short and no long one comes before it."""
        if self._is_closed:
            return
        if self._task is None and len(data) >= _MIN_KNOWN_BYTES:
            known = self._last_result.recognize(data)
            if known is not None:
                deliver(known, data)
                return
        if self._task is None and len(data) < LONG_BYTES:
            decoded = decode(data)
            self._last_result.remember(decoded, data)
            deliver(decoded, data)
            return
        self._waiting.append((data, deliver))
        if self._task is None:
            self._pause(True)
            self._task = asyncio.get_running_loop().create_task(self._deliver_waiting())

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

    async def _deliver_waiting(self) -> None:
        while self._waiting:
            data, deliver = self._waiting.popleft()
            try:
                decoded = await decode_any(data)
                self._last_result.remember(decoded, data)
                deliver(decoded, data)
            except Exception:  # noqa: BLE001  # a message must not take those behind it along
                _log.exception("a message failed inside riglm")
        self._task = None
        on_end, self._on_end = self._on_end, None
        self._pause(False)
        if on_end is not None:
            on_end()
