"""Standard input and output of any kind: pipes, sockets, files, terminals."""

import asyncio
import contextlib
import os
import stat
import threading
from collections.abc import Callable
from typing import Any, Final

_CHUNK: Final = 1 << 18


class Output(asyncio.BaseProtocol):
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


class Input(asyncio.Protocol):
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
