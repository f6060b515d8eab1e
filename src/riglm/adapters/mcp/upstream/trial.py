"""A process that refused the modern era, on trial for the handshake."""

import asyncio
import contextlib
from collections.abc import Callable

from riglm.adapters.mcp.upstream.channel import Channel, Opener, Receiver
from riglm.adapters.mcp.upstream.process import Child
from riglm.domain.errors import UpstreamUnavailable


class Trial(Channel):
    """Proves the process by its new client's own first request, so that no other message is needed.

    A request of another era may have harmed it. If it ends or sends nothing, another one replaces it and is sent the
    same; nothing is run twice by that, since the first request is the handshake.
    """

    def __init__(
        self, child: Child, receiver: Receiver, opener: Opener, discard: Callable[[Channel], None], seconds: float
    ) -> None:
        """`opener` starts another process, `discard` ends this one if it sends nothing in time."""
        self._channel: Channel | None = child
        self._receiver = receiver
        self._opener = opener
        self._discard = discard
        self._seconds = seconds
        self._told: list[bytes] | None = []
        """What another process must be sent; None once this one is proven, or replaced."""
        self._timer: asyncio.TimerHandle | None = None
        self._replacing: asyncio.Task[None] | None = None
        self._witness = _Witness(receiver, lambda: self._proven(child), self._replace)
        child.hand_over(self._witness)

    def write(self, line: bytes) -> None:
        """Send one message."""
        if self._told is not None:
            self._told.append(line)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._seconds, self._replace)
        if self._channel is not None:
            self._channel.write(line)

    async def close(self) -> None:
        """End the process, or the start of another."""
        self._witness.done = True
        if self._timer is not None:
            self._timer.cancel()
        if self._replacing is not None:
            self._replacing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._replacing
        if self._channel is not None:
            await self._channel.close()

    def _proven(self, child: Child) -> None:
        self._told = None
        if self._timer is not None:
            self._timer.cancel()
        child.hand_over(self._receiver)

    def _replace(self) -> None:
        self._witness.done = True
        if self._timer is not None:
            self._timer.cancel()
        harmed, self._channel = self._channel, None
        if harmed is not None:
            self._discard(harmed)
        self._replacing = asyncio.get_running_loop().create_task(self._start_another())

    async def _start_another(self) -> None:
        try:
            self._channel = await self._opener(self._receiver)
            told, self._told = self._told or [], None
            for line in told:
                self._channel.write(line)
        except UpstreamUnavailable as error:
            self._receiver.ended(str(error))


class _Witness(Receiver):
    """Receives the first sign of life, or the end."""

    def __init__(self, receiver: Receiver, on_life: Callable[[], None], on_end: Callable[[], None]) -> None:
        self._receiver = receiver
        self._on_life = on_life
        self._on_end = on_end
        self.done = False

    def heard(self, line: bytes) -> None:
        if not self.done:
            self._on_life()
            self._receiver.heard(line)

    def missed(self, words: str, key: bytes | None = None) -> None:
        if not self.done:
            self._on_life()
            self._receiver.missed(words, key)

    def ended(self, words: str) -> None:
        if not self.done:
            self._on_end()
