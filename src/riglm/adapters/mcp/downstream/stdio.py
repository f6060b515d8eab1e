"""A client on standard input and output."""

import asyncio
import os
import stat
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from riglm.adapters.mcp.wire.framing import LineSplitter, well_formed
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller, ClientChannel, DownstreamPort, ReplySink
from riglm.ports.upstream import EventMark

_CHUNK: Final = 1 << 18


class Lines(ReplySink, ClientChannel):
    """Everything for the client goes out as one line each."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        """Lines that go to `write`."""
        self._write = write

    def related(self, message: Message, event: EventMark | None = None) -> None:
        """Write it."""
        self._write(message.line + b"\n")

    def primed(self, event: EventMark) -> None:
        """Pipes have no places to name."""

    def replied(self, message: Message, status: int = 200, event: EventMark | None = None) -> None:
        """Write it."""
        self._write(message.line + b"\n")

    def interrupted(self) -> None:
        """Pipes cannot be taken up again; links know and never say this."""

    def push(self, message: Message, event: EventMark | None = None) -> bool:
        """Write it: a pipe is always open."""
        self._write(message.line + b"\n")
        return True


class _Input(asyncio.Protocol):
    def __init__(self, feed: Callable[[bytes], None], end: Callable[[], None]) -> None:
        self.data_received = feed  # type: ignore[assignment,method-assign]  # one call less for every chunk
        self._end = end

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()


async def serve_stdio(proxy: DownstreamPort, *, limit: int, stop: asyncio.Event) -> None:
    """Serve the one client on standard input and output until its input ends or `stop` is set.

    Standard output is taken over at once: whatever else prints afterwards goes to standard error.
    """
    source, target = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    write = await _writer(target)
    lines = Lines(write)
    connection = proxy.connect(Caller(transport=Transport.STDIO), lines, lines)

    def too_long(size: int) -> None:
        words = f"Invalid request: a message of {size} bytes is over the limit of {limit}"
        lines.replied(jsonrpc.error(None, jsonrpc.INVALID_REQUEST, words))

    splitter = LineSplitter(lambda line: connection.received(well_formed(line)), too_long, limit)

    def end() -> None:
        splitter.end()
        stop.set()

    await _read(source, splitter.feed, end)
    await stop.wait()
    await connection.close()


def _is_stream(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def _read(fd: int, feed: Callable[[bytes], None], end: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    if _is_stream(fd):
        await loop.connect_read_pipe(lambda: _Input(feed, end), os.fdopen(fd, "rb", 0))
        return

    def pump() -> None:  # files and terminals cannot be polled, or must not be switched to non-blocking
        while data := os.read(fd, _CHUNK):
            loop.call_soon_threadsafe(feed, data)
        loop.call_soon_threadsafe(end)

    threading.Thread(target=pump, name="riglm-stdin", daemon=True).start()


async def _writer(fd: int) -> Callable[[bytes], None]:
    loop = asyncio.get_running_loop()
    if _is_stream(fd):
        transport: Any
        transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(fd, "wb", 0))
        return transport.write  # type: ignore[no-any-return]

    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    return write
