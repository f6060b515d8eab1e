"""An upstream that is a child process."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final
from weakref import WeakSet

from riglm.adapters.mcp.upstream.channel import MessageChannel, Opener, Receiver
from riglm.adapters.mcp.upstream.channel_upstream import ChannelUpstream
from riglm.adapters.mcp.upstream.deadlines import UpstreamTimeouts
from riglm.adapters.mcp.upstream.process import Child, ProcessReaper
from riglm.domain import jsonrpc
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.jsonrpc import Message
from riglm.domain.session import ProtocolEra
from riglm.domain.upstream import UpstreamSpec


class ProbedChannel(MessageChannel, Receiver):
    """Proves the process by its new client's own first request, so that no other message is needed.

    A request of the wrong era may have harmed it. If it ends or sends nothing, it is replaced, and its replacement
    gets the same; nothing is run twice by that, since the first request is the handshake.
    """

    def __init__(
        self,
        child: Child,
        receiver: Receiver,
        opener: Opener,
        discard: Callable[[MessageChannel], None],
        seconds: float,
    ) -> None:
        """`opener` starts another process, `discard` ends this one if it sends nothing in time."""
        self._child = child
        self._channel: MessageChannel | None = child
        self._receiver = receiver
        self._opener = opener
        self._discard = discard
        self._seconds = seconds
        self._written: list[Message] | None = []
        """What another process must be sent; None once this one is proven, or replaced."""
        self._is_decided = asyncio.Event()
        self._decision: asyncio.Task[None] | None = None
        child.hand_over(self)

    def write(self, message: Message) -> None:
        if self._written is not None:
            self._written.append(message)
            self._decide()
        if self._channel is not None:
            self._channel.write(message)

    def hand_over(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._channel is not None and self._written is None:
            self._channel.hand_over(receiver)

    async def close(self) -> None:
        if self._decision is not None:
            self._decision.cancel()
            await asyncio.gather(self._decision, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()

    def received(self, message: Message) -> None:
        self._set_proven()
        self._receiver.received(message)

    def missed(self, words: str, key: bytes | None = None) -> None:
        self._set_proven()
        self._receiver.missed(words, key)

    def ended(self, words: str) -> None:
        self._is_decided.set()
        self._decide()

    def _set_proven(self) -> None:
        self._written = None
        self._is_decided.set()
        self._child.hand_over(self._receiver)

    def _decide(self) -> None:
        if self._decision is None:
            self._decision = asyncio.get_running_loop().create_task(self._replace_unless_proven())

    async def _replace_unless_proven(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_decided.wait(), self._seconds)
        if self._written is None:
            return
        self._channel = None
        self._discard(self._child)
        try:
            self._channel = await self._opener(self._receiver)
            written, self._written = self._written, None
            for message in written:
                self._channel.write(message)
        except UpstreamUnavailableError as error:
            self._receiver.ended(str(error))


class _EarlyReceiver(Receiver):
    """Keeps what a process sends before a client comes, except for pings, which it answers."""

    def __init__(self, write: Callable[[Message], None]) -> None:
        self.messages: list[Message] = []
        self._write = write

    def received(self, message: Message) -> None:
        if message.is_request and message.method == "ping":
            self._write(jsonrpc.answer_without_client(message))
        else:
            self.messages.append(message)

    def missed(self, words: str, key: bytes | None = None) -> None:
        """No request can be waiting for it."""

    def ended(self, words: str) -> None:
        """The first request starts another process."""


_PROOF_SECONDS: Final = 3.0
_log = logging.getLogger("riglm.upstream")


class StdioUpstream(ChannelUpstream):
    """Starts a process for each client connection of the handshake era, and one for all of the modern era.

    `sharing` and `max_processes` of the specification bound the former for each principal: with `session` a client too
    many gets an error, with `auto` it shares one more process with the others that came too late, with `shared` there
    is only one. Principals never share a process of the handshake era: it may keep state of a client.
    """

    def __init__(
        self, spec: UpstreamSpec, *, reaper: ProcessReaper, timeout_seconds: UpstreamTimeouts, limit: int
    ) -> None:
        """An upstream whose processes are watched by `reaper`; `limit` is the longest message in bytes."""
        super().__init__(spec, timeout_seconds)
        self._reaper = reaper
        self._limit = limit
        self._running: dict[Child, str] = {}
        self._children: WeakSet[Child] = WeakSet()
        self._crowded = False
        self._early: tuple[Child, _EarlyReceiver] | None = None

    async def start_early(self) -> None:
        """Start the process of the first client before it comes, if the command can be run."""
        receiver = _EarlyReceiver(lambda message: child.write(message))  # noqa: PLW0108  # it is made next
        child = self._child(receiver)
        with contextlib.suppress(UpstreamUnavailableError):
            await self._start(child)
            self._early = child, receiver

    def has_room(self, principal: str) -> bool:
        if self.spec.sharing != "auto":
            return super().has_room(principal)
        room = list(self._links.values()).count(principal) < self.spec.max_processes
        if not room and not self._crowded:
            self._crowded = True
            _log.warning(
                "more clients than max_processes: from now on they may share a process",
                extra={"upstream": self.spec.name, "max_processes": self.spec.max_processes},
            )
        return room

    def hold(self, *, on: bool) -> None:
        for link in self.channel_links:
            link.pending.hold(on=on)
        for child in list(self._children):
            child.hold(on=on)

    async def open(self, receiver: Receiver, principal: str = "") -> MessageChannel:
        early = await self._take_early(receiver)
        if early is not None:
            self._running[early] = principal
            return early
        running = list(self._running.values()).count(principal)
        if self.spec.sharing == "session" and running >= self.spec.max_processes:
            raise UpstreamUnavailableError(
                f"has {running} processes running, as many as `max_processes` allows: "
                "end another client, raise `max_processes`, or set `sharing: auto`"
            )
        spare = self._spare()
        if spare is None or self._stateless is None:
            return await self._start(self._child(receiver), principal)
        self._running[spare] = principal

        async def opener(receiver: Receiver) -> Child:
            return await self._start(self._child(receiver), principal)

        return ProbedChannel(spare, receiver, opener, self._stateless.discard, _PROOF_SECONDS)

    async def open_stateless(self, receiver: Receiver) -> MessageChannel:
        child = await self._take_early(receiver)
        if child is None:
            child = self._child(receiver)
            await child.start()
        self._running.pop(child, None)
        return child

    async def close(self) -> None:
        if self._early is not None:
            await self._early[0].close()
        await super().close()

    def _child(self, receiver: Receiver) -> Child:
        child = Child(
            self.spec,
            self._reaper,
            limit=self._limit,
            grace=self._timeout_seconds.shutdown,
            receiver=receiver,
            on_gone=self._gone,
        )
        self._children.add(child)
        return child

    async def _take_early(self, receiver: Receiver) -> Child | None:
        """Return the process that was started early, for a first client; None if there is none, or it ended."""
        if self._early is None:
            return None
        (child, earlier), self._early = self._early, None
        if child.is_missing:
            await child.close()
            return None
        child.hand_over(receiver)
        for message in earlier.messages:
            receiver.received(message)
        return child

    async def _start(self, child: Child, principal: str = "") -> Child:
        self._running[child] = principal
        await child.start()
        return child

    def _spare(self) -> Child | None:
        """The process that was asked for the modern era and knows only the handshake, if that did not end it."""
        if self._stateless is None or self.supports(ProtocolEra.MODERN) is not False:
            return None
        channel = self._stateless.release()
        if not isinstance(channel, Child):
            return None
        if channel.is_missing:
            self._stateless.discard(channel)
            return None
        return channel

    def _gone(self, child: Child) -> None:
        """A process ended; another in its place may be of another version."""
        self._running.pop(child, None)
        if not child.closing:
            self._eras.clear()
