"""riglm's HTTP front on a loopback socket, with a scripted inside."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from riglm.adapters.mcp.downstream.http import HttpDownstream, bound_socket
from riglm.domain.schemas.settings import Settings
from tests.unit.adapters.downstream.inside import Inside
from tests.unit.adapters.downstream.peer import Peer, within

Started = Callable[..., Awaitable["Front"]]


class Front:
    """A running front."""

    def __init__(self, inside: Inside, settings: Settings) -> None:
        self.inside = inside
        self.script = inside.script
        self.app = HttpDownstream(inside, settings)
        self.stop = asyncio.Event()
        self._peers: list[Peer] = []
        self._listener = bound_socket(settings.downstream.host, 0)
        self.host, self.port = self._listener.getsockname()[:2]
        self.serving = asyncio.create_task(self.app.serve(self._listener, self.stop))

    async def peer(self, limit: int = 1 << 20) -> Peer:
        """A new connection."""
        reader, writer = await within(asyncio.open_connection(self.host, self.port, limit=limit))
        name = f"[{self.host}]" if ":" in self.host else self.host
        self._peers.append(Peer(reader, writer, f"{name}:{self.port}"))
        return self._peers[-1]

    async def greeted(self) -> Peer:
        """A new connection with a session of its own."""
        peer = await self.peer()
        await peer.greet()
        return peer

    async def beside(self, other: Peer) -> Peer:
        """Another connection for the session of the first."""
        peer = await self.peer()
        peer.session, peer.version = other.session, other.version
        return peer

    async def left(self, peer: Peer) -> None:
        """The peer breaks its connection, and riglm has seen it: it hears later what was sent later."""
        peer.leave()
        with contextlib.suppress(ConnectionError):
            await within(peer.writer.wait_closed())
        other = await self.peer()
        await (await other.send("GET", path="/elsewhere")).whole()

    async def close(self) -> None:
        for peer in self._peers:
            peer.leave()
        self.stop.set()
        await within(self.serving, 15.0)


@pytest.fixture
async def start() -> AsyncIterator[Started]:
    """Starts fronts."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(*, limits: Any = None, **downstream: Any) -> Front:
            given = {"downstream": downstream, "limits": limits or {}}
            front = Front(Inside(), Settings.model_validate(given))
            stack.push_async_callback(front.close)
            return front

        yield begin


@pytest.fixture
async def front(start: Started) -> Front:
    """A front as it is by default."""
    return await start()
