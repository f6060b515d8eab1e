"""A channel that many clients share: every request gets an id of riglm."""

import logging
from abc import ABC, abstractmethod
from typing import Final

from riglm.adapters.mcp.upstream.channel import MessageChannel, Opener, log_unawaited
from riglm.adapters.mcp.upstream.channel_link import cancellation
from riglm.adapters.mcp.upstream.deadlines import PendingRequests, RequestDeadline, UpstreamTimeouts, progress_token
from riglm.adapters.mcp.upstream.health import ChannelHealthTracker
from riglm.adapters.mcp.upstream.reconnecting_channel import ReconnectingChannel
from riglm.domain import jsonrpc, protocol
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamRequest

_log = logging.getLogger("riglm.upstream")


class SharedChannel(ABC):
    """Gives every request a number, which is its id and, where the client wants progress, its progress token."""

    def __init__(
        self,
        spec: UpstreamSpec,
        opener: Opener,
        timeout_seconds: UpstreamTimeouts,
        condition: ChannelHealthTracker | None = None,
    ) -> None:
        """A channel that opens with its first request."""
        self.spec = spec
        self.pending = PendingRequests(spec.name, timeout_seconds, self._expired)
        self._line = ReconnectingChannel(
            spec.name,
            opener,
            on_message=self._received,
            on_missed=self.pending.missed,
            on_down=self.down,
            on_open=self.opened,
            condition=condition,
        )
        self._last_number = 0

    @property
    def tools_version(self) -> int:
        """See `UpstreamLink.tools_version`."""
        return self._line.tools_version

    @abstractmethod
    def said(self, message: Message) -> None:
        """Deal with a notification or a request of the server that is no progress."""

    @abstractmethod
    def answer(self, asked: Message, answer: Message) -> Message:
        """The answer to a request as its client is to see it, but for the id."""

    @abstractmethod
    async def opened(self, channel: MessageChannel) -> None:
        """A new channel is open; nothing else is sent before this returns."""

    def unawaited(self, answer: Message) -> None:
        """An answer came for which no client waits."""
        log_unawaited(self.spec.name, answer)

    def down(self, words: str) -> None:
        """The channel is closed."""
        self.pending.fail_all(ErrorKind.UNAVAILABLE, words)

    @property
    def is_open(self) -> bool:
        """Whether the channel may still be used."""
        return self._line.is_open

    def number(self) -> bytes:
        """Return the next id of riglm."""
        self._last_number += 1
        return b"%d" % self._last_number

    def request(self, message: Message, reply: UpstreamRequest) -> None:
        """Forward a request under a number."""
        own = self.number()
        members = {"id": own}
        if b'"progressToken"' in message.line and progress_token(message):
            members["params"] = jsonrpc.with_member(message.params, ("_meta", "progressToken"), own)
        try:
            self._line.send(message.replace(**members).line)
        except UpstreamUnavailableError as error:
            reply.failed(ErrorKind.UNAVAILABLE, f"upstream {self.spec.name!r} {error}")
            return
        self.pending.sent(own, reply)

    def cancel(self, reply: UpstreamRequest, notice: Message | None) -> None:
        """Notify the server that a response is not wanted any more, under the number that it knows."""
        own = self.pending.withdraw(reply)
        if own is None:
            return
        if notice is None:
            self.notify(cancellation(own, "the client gave up"))
        else:
            self.notify(notice.replace(params=jsonrpc.with_member(notice.params, ("requestId",), own)))

    def notify(self, message: Message) -> None:
        """Send a message with ids of riglm, if the server runs."""
        self._line.notify(message)

    async def close(self) -> None:
        """Close the channel."""
        self._line.shut()
        self.pending.close()
        await self._line.close()

    def _received(self, message: Message) -> None:
        if message.method == "notifications/progress":
            self._progressed(message)
        elif message.method is not None:
            self.said(message)
        elif (waiting := self.pending.take_answered(message)) is None:
            self.unawaited(message)
        else:
            asked = waiting.reply.message
            waiting.reply.replied(self.answer(asked, message).replace(id=asked.id or b"null"))

    def _progressed(self, message: Message) -> None:
        named = bytes(jsonrpc.members(message.params).get("progressToken", b""))
        key = jsonrpc.find_id(self.pending.keys, named) if named else None
        waiting = self.pending.get(key) if key is not None else None
        token = progress_token(waiting.reply.message) if waiting is not None else b""
        if waiting is not None and token:
            params = jsonrpc.with_member(message.params, ("progressToken",), token)
            self.relate(waiting, message.replace(params=params))

    @staticmethod
    def relate(waiting: RequestDeadline, message: Message) -> None:
        """Pass on what belongs to a request; it is a sign of life for that request."""
        waiting.progressed()
        waiting.reply.related(message)

    def _expired(self, key: bytes, reply: UpstreamRequest) -> None:
        if reply.message.method != "initialize":
            self.notify(cancellation(key, "riglm's deadline"))


_SUBSCRIPTION: Final = ("_meta", protocol.META_SUBSCRIPTION)


class SharedLink(SharedChannel, UpstreamLink):
    """A request's number also names its subscription."""

    def __init__(
        self,
        spec: UpstreamSpec,
        opener: Opener,
        message_handler: ServerMessageHandler,
        timeout_seconds: UpstreamTimeouts,
        condition: ChannelHealthTracker | None = None,
    ) -> None:
        """A link that opens with its first request."""
        super().__init__(spec, opener, timeout_seconds, condition)
        self._message_handler = message_handler
        self._answers = 0
        self._refusals = 0

    def send(self, message: Message) -> None:
        if message.method != "notifications/cancelled":
            self.notify(message)

    def release(self) -> MessageChannel | None:
        """The open channel, for clients of the handshake era; None when it is none that they can use.

        A server that refused all it was asked is as good as new. One that understood something may hold its pipe to
        this era, and one that answered nothing may hang: those are closed.
        """
        channel = self._line.release() if not self.pending else None
        if channel is None or 0 < self._answers == self._refusals:
            return channel
        self.discard(channel)
        return None

    def discard(self, channel: MessageChannel) -> None:
        """Close a channel that was released, in the background."""
        self._line.discard(channel)

    async def opened(self, channel: MessageChannel) -> None:
        self._answers = self._refusals = 0

    def answer(self, asked: Message, answer: Message) -> Message:
        self._answers += 1
        self._refusals += bool(answer.error)
        if asked.method == "subscriptions/listen" and answer.result and b"subscriptionId" in answer.line:
            asked_id = asked.id or b"null"
            return answer.replace(result=jsonrpc.with_member(answer.result, _SUBSCRIPTION, asked_id))
        return answer

    def unawaited(self, answer: Message) -> None:
        self._answers += 1
        super().unawaited(answer)

    def said(self, message: Message) -> None:
        if b"subscriptionId" in message.line:
            self._published(message)
        elif message.method == "notifications/message":
            listening = [one for one in self.pending if b"logLevel" in one.reply.message.line]
            if len(listening) == 1:
                self.relate(listening[0], message)
        elif message.id is not None:  # requests to the client are not part of this era
            self.notify(jsonrpc.answer_without_client(message))
        elif message.method == "notifications/cancelled":
            self._ended(message)
        elif self.pending.only is not None:
            self.relate(self.pending.only, message)
        else:
            self._message_handler.unsolicited(self, message)

    def _ended(self, message: Message) -> None:
        """The server ends a subscription: no answer will come."""
        own = bytes(jsonrpc.members(message.params).get("requestId", b""))
        waiting = self.pending.get(own)
        if waiting is not None:
            asked = waiting.reply.message.id or b"null"
            params = jsonrpc.with_member(message.params, ("requestId",), asked)
            self.relate(waiting, message.replace(params=params))
            self.pending.fail(own, ErrorKind.PROTOCOL, "ended the subscription")

    def _published(self, message: Message) -> None:
        meta = jsonrpc.members(jsonrpc.members(message.params).get("_meta", b"{}"))
        waiting = self.pending.get(bytes(meta.get(protocol.META_SUBSCRIPTION, b"")))
        if waiting is not None:
            params = jsonrpc.with_member(message.params, _SUBSCRIPTION, waiting.reply.message.id or b"null")
            self.relate(waiting, message.replace(params=params))
