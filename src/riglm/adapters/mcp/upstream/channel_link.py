"""A link of one client connection over a dedicated channel: ids and payloads pass unchanged."""

from collections.abc import Callable
from typing import Final

from riglm.adapters.mcp.upstream.channel import NOTED, HandshakeReplay, MessageChannel, Opener, log_unawaited
from riglm.adapters.mcp.upstream.deadlines import PendingRequests, RequestDeadline, UpstreamTimeouts, progress_token
from riglm.adapters.mcp.upstream.health import ChannelHealthTracker
from riglm.adapters.mcp.upstream.reconnecting_channel import ReconnectingChannel
from riglm.domain import jsonrpc
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamRequest

_ABOUT_ONE_REQUEST: Final = "notifications/message"
_MAX_UNANSWERED: Final = 2
"""Handshakes in a row without an answer after which the server is restarted; the first may wait for a download."""


class ChannelLink(UpstreamLink):
    """Correlates answers by the client's own ids, and re-opens with the client's own handshake."""

    def __init__(
        self,
        spec: UpstreamSpec,
        opener: Opener,
        message_handler: ServerMessageHandler,
        timeout_seconds: UpstreamTimeouts,
        on_close: Callable[["ChannelLink"], None],
        condition: ChannelHealthTracker | None = None,
    ) -> None:
        """A link that opens with its first request; `on_close` is called when it is closed and released."""
        self.spec = spec
        self._message_handler = message_handler
        self._timeout_seconds = timeout_seconds
        self._on_close = on_close
        self._handshake_replay = HandshakeReplay()
        self._unanswered = 0
        self._pending = PendingRequests(spec.name, timeout_seconds, self._expired)
        self._line = ReconnectingChannel(
            spec.name,
            opener,
            on_message=self._received,
            on_missed=self._pending.missed,
            on_down=lambda words: self._pending.fail_all(ErrorKind.UNAVAILABLE, words),
            on_open=self._greet,
            condition=condition,
        )

    @property
    def tools_version(self) -> int:
        return self._line.tools_version

    def request(self, message: Message, reply: UpstreamRequest) -> None:
        key = jsonrpc.id_key(message.id or b"null")
        if key in self._pending:
            reply.replied(jsonrpc.error(message.id, jsonrpc.INVALID_REQUEST, "Invalid request: the id is in use"), 400)
            return
        if message.method == "initialize":
            self._handshake_replay.begin()
        try:
            self._line.send(message.line)
        except UpstreamUnavailableError as error:
            reply.failed(ErrorKind.UNAVAILABLE, f"upstream {self.spec.name!r} {error}")
            return
        self._pending.sent(key, reply)

    def send(self, message: Message) -> None:
        self._line.notify(message)

    def cancel(self, reply: UpstreamRequest, notice: Message | None) -> None:
        if self._pending.withdraw(reply) is not None:
            self.send(notice or cancellation(reply.message.id or b"null", "the client gave up"))

    async def close(self) -> None:
        self._line.shut()
        self._pending.close()
        try:
            await self._line.close()
        finally:
            self._on_close(self)

    def _received(self, message: Message) -> None:
        if message.method is not None:
            self._said(message)
            return
        waiting = self._pending.take_answered(message)
        if waiting is not None:
            asked = waiting.reply.message.id or b"null"
            if message.id != asked and (
                asked[:1] != b'"' or jsonrpc.id_key(message.id or b"") != jsonrpc.id_key(asked)
            ):
                message = message.replace(id=asked)
            if waiting.reply.message.method in NOTED:
                self._unanswered = 0
                self._handshake_replay.answered(waiting.reply.message, message)
            waiting.reply.replied(message)
        elif not self._handshake_replay.heard(message):
            log_unawaited(self.spec.name, message)

    def _said(self, message: Message) -> None:
        waiting = self._related(message)
        if waiting is None:
            self._message_handler.unsolicited(self, message)
            return
        waiting.progressed()
        token = progress_token(waiting.reply.message) if message.method == "notifications/progress" else b""
        if token and token != bytes(jsonrpc.members(message.params).get("progressToken", b"")):
            message = message.replace(params=jsonrpc.with_member(message.params, ("progressToken",), token))
        waiting.reply.related(message)

    def _related(self, message: Message) -> RequestDeadline | None:
        """Return the request that a message of the server belongs to, if this transport shows it."""
        if message.method == "notifications/progress":
            token = bytes(jsonrpc.members(message.params).get("progressToken", b""))
            return self._pending.with_progress_token(token)
        if message.id is not None or message.method == _ABOUT_ONE_REQUEST:
            return self._pending.only
        return None

    async def _greet(self, channel: MessageChannel) -> None:
        """Repeat the client's handshake on a channel that replaces a broken one."""
        await self._handshake_replay.repeat(channel, self._timeout_seconds.initialize)

    def _expired(self, key: bytes, reply: UpstreamRequest) -> None:
        if reply.message.method != "initialize":
            self.send(cancellation(reply.message.id or b"null", "riglm's deadline"))
            return
        self._unanswered += 1
        if self._unanswered == _MAX_UNANSWERED:
            self._unanswered = 0
            self._line.restart(f"did not answer {_MAX_UNANSWERED} handshakes")


def cancellation(message_id: bytes, reason: str) -> Message:
    """Return a `notifications/cancelled` that riglm sends itself."""
    params = b'{"requestId":%b,"reason":%b}' % (message_id, jsonrpc.encode(reason))
    return jsonrpc.notification("notifications/cancelled", params)
