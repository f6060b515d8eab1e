"""A link of one client connection over a channel of its own: ids and payloads pass as they are."""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Final

from riglm.adapters.mcp.upstream.deadlines import Deadlines, Patience, Waiting
from riglm.adapters.mcp.upstream.lifeline import Lifeline, Opener
from riglm.adapters.mcp.upstream.process import Channel
from riglm.domain import jsonrpc
from riglm.domain.errors import UpstreamUnavailable
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Malformed, Message
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import Outlet, Reply, Stream, UpstreamLink

_log = logging.getLogger("riglm.upstream")
_AGAIN: Final = b'"riglm-again"'
_ID: Final = re.compile(rb'"id"\s*:\s*(-?[0-9]+|"(?:[^"\\]|\\.)*")')
_LINGER: Final = frozenset({"initialize", "notifications/initialized"})


class ChannelLink(UpstreamLink):
    """Correlates answers by the client's own ids, and re-opens with the client's own handshake."""

    def __init__(
        self,
        spec: UpstreamSpec,
        opener: Opener,
        outlet: Outlet,
        patience: Patience,
        on_close: Callable[["ChannelLink"], None],
    ) -> None:
        """A link that opens with its first request; `on_close` is told when it is closed for good."""
        self.spec = spec
        self._outlet = outlet
        self._patience = patience
        self._on_close = on_close
        self._line = Lifeline(spec.name, opener, on_line=self._received, on_down=self._down, on_open=self._reopened)
        self._deadlines = Deadlines(spec.name, patience, self._expired)
        self._pending: dict[bytes, Waiting] = {}
        self._handshake: Message | None = None
        self._greeting: asyncio.Future[Message] | None = None

    def request(self, message: Message, reply: Reply) -> None:
        """Forward a request."""
        key = jsonrpc.id_key(message.id or b"null")
        if key in self._pending:
            reply.replied(jsonrpc.error(message.id, jsonrpc.INVALID_REQUEST, "Invalid request: the id is in use"), 400)
            return
        if message.method == "initialize":
            self._handshake = message
        self._pending[key] = self._deadlines.add(reply)
        self._line.send(message.line)

    def send(self, message: Message) -> None:
        """Forward a notification or a response."""
        if self._line.channel is not None or message.method in _LINGER:
            self._line.send(message.line)

    def cancel(self, reply: Reply, notice: Message | None) -> None:
        """Forward the client's notice, and forget the request."""
        waiting = self._pending.pop(jsonrpc.id_key(reply.message.id or b"null"), None)
        if waiting is not None:
            self._deadlines.remove(waiting)
            self.send(notice or _cancellation(reply.message.id or b"null", "the client gave up"))

    def listen(self, *, listening: bool) -> None:
        """A channel always listens."""

    def resume(self, last_event_id: bytes, stream: Stream) -> None:
        """A channel has no places to go back to."""
        stream.ended()

    async def close(self) -> None:
        """Close the channel."""
        self._deadlines.close()
        self._pending.clear()
        self._on_close(self)
        await self._line.close()

    def _received(self, line: bytes) -> None:
        try:
            message = jsonrpc.decode(line)
        except Malformed as error:
            self._garbled(line, error)
            return
        if message.method is not None:
            self._said(message)
            return
        waiting = self._pending.pop(jsonrpc.id_key(message.id or b"null"), None)
        if waiting is not None:
            self._deadlines.remove(waiting)
            waiting.reply.replied(message)
        elif self._greeting is not None and message.id == _AGAIN and not self._greeting.done():
            self._greeting.set_result(message)
        else:
            _log.debug("ignored an answer that nobody waits for", extra={"upstream": self.spec.name})

    def _said(self, message: Message) -> None:
        waiting = self._related(message)
        if waiting is None:
            self._outlet.unsolicited(self, message)
            return
        waiting.progressed()
        waiting.reply.related(message)

    def _related(self, message: Message) -> Waiting | None:
        """The request that a message of the server belongs to, as far as this transport lets one tell."""
        if message.method == "notifications/progress":
            return by_progress_token(message, self._pending)
        if message.id is not None or message.method == "notifications/message":
            return next(iter(self._pending.values())) if len(self._pending) == 1 else None
        return None

    def _garbled(self, line: bytes, error: Malformed) -> None:
        """Noise on the output is skipped; an answer that cannot be read fails its request."""
        _log.warning("skipped a line that is no message", extra={"upstream": self.spec.name, "bytes": len(line)})
        found = _ID.search(line) if line[:1] == b"{" else None
        waiting = self._pending.pop(jsonrpc.id_key(found[1]), None) if found else None
        if waiting is not None:
            self._deadlines.remove(waiting)
            waiting.reply.failed(ErrorKind.PROTOCOL, f"upstream {self.spec.name!r} sent an unreadable answer: {error}")

    def _down(self, reason: str) -> None:
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            self._deadlines.remove(waiting)
            waiting.reply.failed(ErrorKind.UNAVAILABLE, f"upstream {self.spec.name!r} {reason}")

    async def _reopened(self, channel: Channel, again: bool) -> None:
        """Repeat the client's handshake on a channel that replaces a broken one."""
        if not again or self._handshake is None:
            return
        self._greeting = asyncio.get_running_loop().create_future()
        channel.write(self._handshake.replace(id=_AGAIN).line)
        answer = await asyncio.wait_for(self._greeting, self._patience.initialize)
        if answer.error:
            raise UpstreamUnavailable("restarted and refused the handshake")
        channel.write(jsonrpc.notification("notifications/initialized").line)

    def _expired(self, waiting: Waiting) -> None:
        message = waiting.reply.message
        self._pending.pop(jsonrpc.id_key(message.id or b"null"), None)
        if message.method != "initialize":
            self.send(_cancellation(message.id or b"null", "riglm's deadline"))


def by_progress_token(message: Message, pending: dict[bytes, Waiting]) -> Waiting | None:
    """The request whose progress token a progress notification carries."""
    token = bytes(jsonrpc.members(message.params).get("progressToken", b""))
    for waiting in pending.values():
        asked = waiting.reply.message
        if b'"progressToken"' in asked.line and token == progress_token(asked):
            return waiting
    return None


def progress_token(message: Message) -> bytes:
    """The raw progress token of a request, empty when it has none."""
    meta = jsonrpc.members(message.params).get("_meta")
    return bytes(jsonrpc.members(meta).get("progressToken", b"")) if meta else b""


def _cancellation(message_id: bytes, reason: str) -> Message:
    params = b'{"requestId":%b,"reason":%b}' % (message_id, jsonrpc.encode(reason))
    return jsonrpc.notification("notifications/cancelled", params)
