"""A client on standard input and output."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from typing import Final

from riglm.adapters.mcp.downstream.pipes import Input, Output
from riglm.adapters.mcp.wire.edges import Edges
from riglm.adapters.mcp.wire.framing import LineSplitter, well_formed
from riglm.domain import jsonrpc, salvage
from riglm.domain.errors import RiglmError
from riglm.domain.jsonrpc import Message
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller, ClientChannel, DownstreamPort, ReplySink
from riglm.ports.upstream import EventMark

BUFFER: Final = 16 << 20
"""When this many bytes wait for the client, nothing more is read from it, nor from servers on pipes, until it reads."""

MOST_WAITING: Final = 256 << 20
STALL_SECONDS: Final = 60.0
"""A client for which this many bytes wait is given up when it reads none of them for a while, and at once when
twice as many wait. Beyond `BUFFER` these come from servers that cannot be held back, those that are reached by URL."""

START_SECONDS: Final = 8.0
ANSWER_SECONDS: Final = 1.5
"""A client that closed its input gets what it still waits for: the first answer of all, for which a server may have to
start, within the first of these times in seconds, each further one within the second after the one before."""

_FLUSH_SECONDS: Final = 2.0
_log = logging.getLogger("riglm.downstream")


class Lines(ReplySink, ClientChannel):
    """Everything for the client goes out as one line each; `on_reply` is called after each answer."""

    def __init__(self, write: Callable[[bytes], None], on_reply: Callable[[], None] = lambda: None) -> None:
        """Lines that go to `write`."""
        self._write = write
        self._on_reply = on_reply

    def related(self, message: Message, event: EventMark | None = None) -> None:
        """Write it."""
        self._write(message.line + b"\n")

    def primed(self, event: EventMark) -> None:
        """Pipes have no places to name."""

    def replied(self, message: Message, status: int = 200, event: EventMark | None = None) -> None:
        """Write it."""
        self._write(message.line + b"\n")
        self._on_reply()

    def interrupted(self) -> None:
        """Pipes cannot be taken up again; links know and never say this."""

    def push(self, message: Message, event: EventMark | None = None) -> bool:
        """Write it: a pipe is always open."""
        self._write(message.line + b"\n")
        return True


class StdioClient:
    """The one client: its lines go to a connection, and everything for it goes out as lines.

    It is disconnected when it closed its output, or closed its input and all its requests have responses.
    """

    def __init__(
        self,
        proxy: DownstreamPort,
        *,
        limit: int,
        buffer: int,
        gone: Callable[[], None],
        most_waiting: int = MOST_WAITING,
        stall: float = STALL_SECONDS,
    ) -> None:
        """`limit` is the longest message in bytes; `gone` is called when the client disconnects."""
        self._proxy = proxy
        self._limit = limit
        self._gone = gone
        self._ended = False
        self._patience = START_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self._full = False
        self._taken = 0
        self._splitter = LineSplitter(self._line, self._too_long, limit)
        self._edges = Edges()
        self._chunk = b""
        self._input = Input(self._fed, self._end)
        self._output = Output(self._lost, self._hold, soft=buffer, hard=max(most_waiting, limit), stall=stall)
        self._lines = Lines(self._output.write, self._answered)
        self._connection = proxy.connect(Caller(transport=Transport.STDIO), self._lines, self._lines)

    @property
    def is_stuck(self) -> bool:
        """True if the client was disconnected because it did not read what waited for it, which is lost."""
        return self._output.is_stuck

    async def open(self, source: int, target: int) -> None:
        """Serve on these file descriptors, which are taken over."""
        await self._output.open(target)
        await self._input.open(source)

    async def close(self) -> None:
        """Give up what is under way, and let the client read what was written."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._input.close()
        await self._connection.close()
        await self._output.close(_FLUSH_SECONDS)

    def _fed(self, data: bytes) -> None:
        self._chunk = data
        self._splitter.feed(data)
        self._chunk = b""
        self._edges.feed(data)

    def _line(self, line: bytes) -> None:
        self._connection.received(well_formed(line))

    def _too_long(self, size: int) -> None:
        words = f"Invalid request: a message of {size} bytes is over the limit of {self._limit}"
        for head, tail in self._edges.of(size, self._chunk) or [(b"", b"")]:
            self._lines.replied(jsonrpc.error(salvage.asked_id(head, tail), jsonrpc.INVALID_REQUEST, words))

    def _end(self) -> None:
        if self._ended:
            return
        self._splitter.end()
        self._ended = True
        self._wait_or_go()

    def _answered(self) -> None:
        self._patience = ANSWER_SECONDS
        if self._ended:
            self._wait_or_go()

    def _hold(self, on: bool) -> None:
        self._full = on
        self._input.hold(on)
        self._proxy.hold(on=on)

    def _wait_or_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._connection.owes:
            self._taken = self._output.taken
            self._timer = asyncio.get_running_loop().call_later(self._patience, self._waited)
        else:
            self._gone()

    def _waited(self) -> None:
        """Go, unless it is only the client itself that makes the servers wait, and it reads."""
        if self._full and self._output.taken > self._taken:
            self._wait_or_go()
        else:
            self._gone()

    def _lost(self, reason: str) -> None:
        level = logging.WARNING if self._output.is_stuck else logging.INFO
        _log.log(level, "client disconnected", extra={"reason": reason})
        self._gone()


async def serve_stdio(proxy: DownstreamPort, *, limit: int, stop: asyncio.Event, buffer: int = BUFFER) -> None:
    """Serve the one client on standard input and output until it disconnects or `stop` is set.

    Standard output is reserved at once: later prints of other code go to standard error. `limit` is the
    longest message and `buffer` what may wait for the client before riglm reads nothing more from it, in bytes.

    Raises:
        RiglmError: the client did not read, and was given up.
    """
    source, target = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    client = StdioClient(proxy, limit=limit, buffer=buffer, gone=stop.set)
    await client.open(source, target)
    await stop.wait()
    await client.close()
    if client.is_stuck:
        raise RiglmError("the client did not read its responses and was disconnected; the log may give the reason")
