"""A client on standard input and output."""

import asyncio
import contextlib
import logging
import os
import stat
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from riglm.adapters.mcp.wire.messages import LineSplitter, well_formed
from riglm.domain import jsonrpc, rawjson
from riglm.domain.errors import RiglmError
from riglm.domain.jsonrpc import Message
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller, ClientChannel, ClientResponseSink, DownstreamPort

_CHUNK: Final = 1 << 18
_MIN_UNCOPIED_BYTES: Final = 1 << 16


class StdoutWriter(asyncio.BaseProtocol):
    """Where lines for the client go.

    `on_lost` is called once, when the client closed its end or cannot be written to. What it does not read in time
    waits here: `on_full` is called when that exceeds `soft` bytes and again when not. A client is given up when
    more than `hard` bytes wait and it takes not a single one for `stall` seconds, or when twice as many wait.
    """

    def __init__(
        self, on_lost: Callable[[str], None], on_full: Callable[[bool], None], *, soft: int, hard: int, stall: float
    ) -> None:
        """An output that is not open yet."""
        self.is_stuck = False
        """Whether the client was given up because it did not read."""
        self._on_lost = on_lost
        self._on_full = on_full
        self._soft = soft
        self._hard = hard
        self._stall = stall
        self._written = 0
        self._watch: asyncio.TimerHandle | None = None
        self._fd = -1
        self._transport: Any = None
        self._full = False
        self._closed = asyncio.Event()

    async def open(self, fd: int) -> None:
        """Take over a file descriptor."""
        self._fd = fd
        if _can_be_polled(fd):
            loop = asyncio.get_running_loop()
            self._transport, _ = await loop.connect_write_pipe(lambda: self, os.fdopen(fd, "wb", 0))
            self._transport.set_write_buffer_limits(high=self._soft)

    def write(self, data: bytes) -> None:
        """Write, now or as soon as the client reads."""
        if self._closed.is_set():
            return
        if self._transport is None:
            self._write_now(data)
            return
        self._transport.write(data)
        self._written += len(data)
        if self._full:
            self._watch_over()

    async def close(self, seconds: float) -> None:
        """Write what waits, while the client keeps reading; an interrupted write is no loss to report."""
        self._on_lost = lambda _: None
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is None:
            self._closed.set()
            with contextlib.suppress(OSError):
                os.close(self._fd)
            return
        if self._closed.is_set():
            return
        self._transport.close()
        taken = -1
        while not self._closed.is_set() and self.taken > taken:
            taken = self.taken
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), seconds)
        if not self._closed.is_set():
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client closed its end, or all was written at the close."""
        self._lose("closed its end")

    def pause_writing(self) -> None:
        """More than the soft limit waits."""
        self._full = True
        self._on_full(True)

    def resume_writing(self) -> None:
        """The client reads."""
        self._full = False
        self._on_full(False)

    @property
    def taken(self) -> int:
        """How many bytes the client, or the pipe to it, took so far."""
        waiting = 0 if self._transport is None else int(self._transport.get_write_buffer_size())
        return self._written - waiting

    def _watch_over(self) -> None:
        waiting = self._transport.get_write_buffer_size()
        if waiting > 2 * self._hard:
            self._give_up()
        elif waiting > self._hard and self._watch is None:
            loop = asyncio.get_running_loop()
            self._watch = loop.call_later(self._stall, self._look_again, self.taken)

    def _look_again(self, taken: int) -> None:
        self._watch = None
        if self._closed.is_set():
            return
        if self.taken == taken:
            self._give_up()
        else:
            self._watch_over()

    def _give_up(self) -> None:
        if not self._closed.is_set():
            self.is_stuck = True
            self._lose(f"did not read the {self._transport.get_write_buffer_size()} bytes that wait for it")
            self._transport.abort()

    def _write_now(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._lose(error.strerror or str(error))

    def _lose(self, reason: str) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._on_lost(reason)


class StdinReader(asyncio.Protocol):
    """Where the client's bytes come from, in the order that they came."""

    def __init__(self, feed: Callable[[bytes], None], end: Callable[[], None]) -> None:
        """An input that is not open yet; `end` is called once, after the last byte."""
        self.data_received = feed  # type: ignore[assignment,method-assign]  # one call less for every chunk
        self._feed = feed
        self._end = end
        self._transport: Any = None
        self._held = False
        self._wanted = threading.Event()

    async def open(self, fd: int) -> None:
        """Take over a file descriptor and read from it."""
        loop = asyncio.get_running_loop()
        if _can_be_polled(fd):
            self._transport, _ = await loop.connect_read_pipe(lambda: self, os.fdopen(fd, "rb", 0))
        else:
            threading.Thread(target=self._pump, args=(fd, loop), name="riglm-stdin", daemon=True).start()

    def hold(self, on: bool) -> None:
        """Read nothing for the time being, or read on."""
        if self._held == on:
            return
        self._held = on
        if self._transport is None:
            if not on:
                self._wanted.set()
        elif not self._transport.is_closing():
            (self._transport.pause_reading if on else self._transport.resume_reading)()

    def close(self) -> None:
        """Read nothing more."""
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client closed its end."""
        self._end()

    def _pump(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        """Read in a thread: files and terminals cannot be polled, or must not be switched to non-blocking."""
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            while data := _read(fd):
                self._wanted.clear()
                loop.call_soon_threadsafe(self._take, data)
                self._wanted.wait()
            loop.call_soon_threadsafe(self._end)

    def _take(self, data: bytes) -> None:
        self._feed(data)
        if not self._held:
            self._wanted.set()


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _CHUNK)
    except OSError:  # a terminal that was closed
        return b""


def _can_be_polled(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


BUFFER: Final = 16 << 20
"""When this many bytes wait for the client, nothing more is read from it, nor from servers on pipes, until it reads."""

MAX_WAITING: Final = 256 << 20
STALL_SECONDS: Final = 60.0
"""A client for which this many bytes wait is given up when it reads none of them for a while, and at once when
twice as many wait. Beyond `BUFFER` these come from servers that cannot be held back, those that are reached by URL."""

START_SECONDS: Final = 8.0
STOP_SECONDS: Final = 4.0
ANSWER_SECONDS: Final = 1.5
"""Seconds to wait for responses to requests in flight once the client closed its input or riglm is stopped: for the
first one of a session, for which a server may have to start; for the first one after a stop; for each further one after
the one before. The other requests get an error."""

_FLUSH_SECONDS: Final = 2.0
_log = logging.getLogger("riglm.downstream")


class StdioClient(ClientResponseSink, ClientChannel):
    """The one client: its lines go to a connection, and everything for it goes out as lines.

    It is disconnected when it closed its output, or closed its input and all its requests have responses.
    """

    def __init__(
        self,
        proxy: DownstreamPort,
        *,
        limit: int,
        buffer: int,
        on_disconnect: Callable[[], None],
        most_waiting: int = MAX_WAITING,
        stall: float = STALL_SECONDS,
    ) -> None:
        """`limit` is the longest message in bytes; `on_disconnect` is called when the client disconnects."""
        self._proxy = proxy
        self._limit = limit
        self._on_disconnect = on_disconnect
        self._ended = False
        self._timeout_seconds = START_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self._full = False
        self._taken = 0
        self._splitter = LineSplitter(self._line, self._too_long, limit)
        self._input = StdinReader(self._splitter.feed, self._end)
        self._output = StdoutWriter(self._lost, self._hold, soft=buffer, hard=max(most_waiting, limit), stall=stall)
        self._write = self._output.write
        self._connection = proxy.connect(Caller(transport=Transport.STDIO), self, self)

    @property
    def is_stuck(self) -> bool:
        """True if the client was disconnected because it did not read what waited for it, which is lost."""
        return self._output.is_stuck

    async def open(self, source: int, target: int) -> None:
        """Serve on these file descriptors, which are taken over."""
        await self._output.open(target)
        await self._input.open(source)

    async def close(self) -> None:
        """Answer what is in flight with an error, and let the client read what was written."""
        self._ended = True
        for request in self._connection.in_flight:
            self._output.write(jsonrpc.create_stop_error(request).line + b"\n")
        if self._timer is not None:
            self._timer.cancel()
        self._input.close()
        await self._connection.close()
        await self._output.close(_FLUSH_SECONDS)

    def stop_reading(self) -> bool:
        """Read nothing more; `on_disconnect` is called once what is in flight is answered, or takes too long.

        False if the client closed its input before: it has been waited for, and the stop ends that.
        """
        if self._ended:
            return False
        self._ended = True
        self._timeout_seconds = STOP_SECONDS
        self._input.close()
        self._wait_or_go()
        return True

    def related(self, message: Message) -> None:
        self._write(message.line + b"\n")

    def replied(self, message: Message, status: int = 200) -> None:
        if len(message.line) < _MIN_UNCOPIED_BYTES:
            self._write(message.line + b"\n")
        else:
            self._write(message.line)
            self._write(b"\n")
        self._timeout_seconds = ANSWER_SECONDS
        if self._ended:
            self._wait_or_go()

    def push(self, message: Message) -> bool:
        self._write(message.line + b"\n")
        return True

    def _line(self, line: bytes) -> None:
        self._connection.receive_line(line if line.isascii() else well_formed(line))

    def _too_long(self, size: int, head: bytes, tail: bytes) -> None:
        words = f"Invalid request: a message of {size} bytes is over the limit of {self._limit}"
        self.replied(jsonrpc.error(rawjson.asked_id(head, tail), jsonrpc.INVALID_REQUEST, words))

    def _end(self) -> None:
        if self._ended:
            return
        self._splitter.end()
        self._ended = True
        self._wait_or_go()

    def _hold(self, on: bool) -> None:
        self._full = on
        self._input.hold(on)
        self._proxy.hold(on=on)

    def _wait_or_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._connection.in_flight:
            self._taken = self._output.taken
            self._timer = asyncio.get_running_loop().call_later(self._timeout_seconds, self._waited)
        else:
            self._on_disconnect()

    def _waited(self) -> None:
        """Go, unless it is only the client itself that makes the servers wait, and it reads."""
        if self._full and self._output.taken > self._taken:
            self._wait_or_go()
        else:
            self._on_disconnect()

    def _lost(self, reason: str) -> None:
        level = logging.WARNING if self._output.is_stuck else logging.INFO
        _log.log(level, "client disconnected", extra={"reason": reason})
        self._ended = True
        self._on_disconnect()


async def serve_stdio(proxy: DownstreamPort, *, limit: int, stop: asyncio.Event, buffer: int = BUFFER) -> None:
    """Serve the one client on standard input and output until it disconnects or `stop` is set.

    When `stop` is set, requests in flight are finished first; when it is set again, they are not.

    Standard output is reserved at once: later prints of other code go to standard error. `limit` is the
    longest message and `buffer` what may wait for the client before riglm reads nothing more from it, in bytes.

    Raises:
        RiglmError: the client did not read, and was given up.
    """
    source, target = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    client = StdioClient(proxy, limit=limit, buffer=buffer, on_disconnect=stop.set)
    await client.open(source, target)
    await stop.wait()
    stop.clear()
    if client.stop_reading():
        await stop.wait()
    await client.close()
    if client.is_stuck:
        raise RiglmError("the client did not read its responses and was disconnected; the log may give the reason")
