"""The scripted server over a pipe."""

import asyncio
import sys

from tests.interaction.servers.conversation import Conversation, Peer, Refusal
from tests.interaction.servers.options import Options
from tests.interaction.servers.tricks import tricky


class Pipe:
    """Every message of the connection goes to stdout."""

    def __init__(self, writer: asyncio.WriteTransport) -> None:
        self._writer = writer
        self.headers: dict[str, str] = {}

    def send(self, raw: bytes) -> None:
        """Send one line."""
        self._writer.write(raw + b"\n")

    def write(self, raw: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(raw)

    def trick(self, kind: str, reply: bytes) -> None:
        """Send a line in the named form."""
        self._writer.write(tricky(kind, reply) + b"\n")

    def fault(self, kind: str) -> None:
        """A pipe has no HTTP faults."""
        raise Refusal(-32602, f"no {kind} on a pipe")


class _Lines(asyncio.Protocol):
    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._parts: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for line in whole:
            self.lines.put_nowait(b"".join((*self._parts, line)))
            self._parts.clear()
        if rest:
            self._parts.append(rest)

    def eof_received(self) -> None:
        self.lines.put_nowait(None)


class _Output(asyncio.Protocol):
    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()


async def serve_stdio(conversation: Conversation, options: Options) -> None:
    """Answer until stdin ends; a stubborn server stays until its lifetime is over."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(options.lifetime):
        _, lines = await loop.connect_read_pipe(_Lines, sys.stdin.buffer)
        writer, output = await loop.connect_write_pipe(_Output, sys.stdout.buffer)
        pipe = Pipe(writer)
        peer = Peer(announce=pipe.send)
        conversation.peers.add(peer)
        tasks: set[asyncio.Task[None]] = set()
        while (line := await lines.lines.get()) is not None:
            if not line.strip():
                continue
            task = loop.create_task(conversation.receive(line, peer, pipe))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        conversation.record.event("end of input")
        if options.stubborn:
            await asyncio.Event().wait()
        for task in tasks:
            task.cancel()
        writer.close()
        await output.closed.wait()
