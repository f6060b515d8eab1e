"""Links of several clients over one channel, where their ids may be equal; modern clients always share one."""

from typing import Final

from riglm.adapters.mcp.upstream.channel import MessageChannel, Opener
from riglm.adapters.mcp.upstream.channel_link import ReconnectingLink, cancellation
from riglm.adapters.mcp.upstream.deadlines import PendingRequest, UpstreamTimeouts, progress_token
from riglm.adapters.mcp.upstream.health import ChannelHealthTracker
from riglm.domain import jsonrpc, protocol
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamRequest


class SharedChannel(ReconnectingLink):
    """Gives every request a key, which is its id and, where the client wants progress, its progress token.

    That is a number, or the id that the request has if no other client uses the same.
    """

    _last_number = 0

    def number(self) -> bytes:
        """Return the next id of riglm."""
        self._last_number += 1
        while (number := b"%d" % self._last_number) in self.pending.by_key:
            self._last_number += 1
        return number

    def request(self, message: Message, reply: UpstreamRequest) -> None:
        """Forward a request under its key."""
        given = message.id or b"null"
        key = jsonrpc.id_key(given)
        if not reply.has_unique_id or key in self.pending.by_key:
            key = given = self.number()
        members = {} if given == message.id else {"id": key}
        if b'"progressToken"' in message.line and progress_token(message):
            members["params"] = jsonrpc.with_member(message.params, ("_meta", "progressToken"), key)
        self.forward(key, message.replace(**members) if members else message, reply)

    def cancel(self, reply: UpstreamRequest, notice: Message | None) -> None:
        """Notify the server that a response is not wanted any more, by the id that it knows."""
        own = self.pending.withdraw(reply)
        if own is None:
            return
        if notice is None:
            super().send(cancellation(own, "the client gave up"))
        else:
            super().send(notice.replace(params=jsonrpc.with_member(notice.params, ("requestId",), own)))

    def respond(self, request: PendingRequest, response: Message) -> None:
        asked = request.reply.message.id or b"null"
        request.reply.replied(response if response.id == asked else response.replace(id=asked))

    def relay(self, message: Message) -> None:
        """Pass progress on to its request, under the token that its client knows."""
        named = bytes(jsonrpc.members(message.params).get("progressToken", b""))
        key = jsonrpc.find_id(self.pending.by_key, named) if named else None
        waiting = self.pending.by_key.get(key) if key is not None else None
        token = progress_token(waiting.reply.message) if waiting is not None else b""
        if waiting is not None and token:
            waiting.relate(message.replace(params=jsonrpc.with_member(message.params, ("progressToken",), token)))

    def before_expiry(self, request: PendingRequest) -> None:
        if request.reply.message.method != "initialize":
            super().send(cancellation(request.key, "riglm's deadline"))


_SUBSCRIPTION: Final = ("_meta", protocol.META_SUBSCRIPTION)


class SharedLink(SharedChannel, UpstreamLink):
    """The link of all modern clients to a server, of which there is only one on stdio.

    A request's key also names its subscription.
    """

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
            super().send(message)

    def release(self) -> MessageChannel | None:
        """Release the open channel for clients of the handshake era; None when it is none that they can use.

        A server that refused all it was asked is as good as new. One that understood something may hold its pipe to
        this era, and one that answered nothing may hang: those are closed.
        """
        if self.pending.by_key:
            return None
        channel = self.take_channel()
        if channel is None or 0 < self._answers == self._refusals:
            return channel
        self.discard(channel)
        return None

    def on_open(self, handshake: Message | None) -> None:
        self._answers = self._refusals = 0

    def respond(self, request: PendingRequest, response: Message) -> None:
        self._answers += 1
        self._refusals += bool(response.error)
        asked = request.reply.message
        if asked.method == "subscriptions/listen" and response.result and b"subscriptionId" in response.line:
            result = jsonrpc.with_member(response.result, _SUBSCRIPTION, asked.id or b"null")
            response = response.replace(result=result)
        super().respond(request, response)

    def on_unawaited(self, response: Message) -> None:
        self._answers += 1
        super().on_unawaited(response)

    def relay(self, message: Message) -> None:
        if message.method == "notifications/progress":
            super().relay(message)
        elif b"subscriptionId" in message.line:
            self._relay_published(message)
        elif message.method == "notifications/message":
            self._relay_to_one(message, [one for one in self._calls() if b"logLevel" in one.reply.message.line])
        elif message.id is not None:  # requests to the client are not part of this era
            self.send(jsonrpc.answer_without_client(message))
        elif message.method == "notifications/cancelled":
            self._end_subscription(message)
        elif not self._relay_to_one(message, self._calls() or list(self.pending.by_key.values())):
            self._message_handler.unsolicited(self, message)

    def _calls(self) -> list[PendingRequest]:
        """Return the requests in flight but for subscriptions."""
        return [one for one in self.pending.by_key.values() if one.reply.message.method != "subscriptions/listen"]

    @staticmethod
    def _relay_to_one(message: Message, requests: list[PendingRequest]) -> bool:
        """Pass on what belongs to one of these requests; False if there are several, which are not of one client."""
        if not requests or not (len(requests) == 1 or all(each.reply.has_unique_id for each in requests)):
            return False
        requests[-1].relate(message)
        return True

    def _end_subscription(self, message: Message) -> None:
        """End a subscription that the server ends: no response will come."""
        own = bytes(jsonrpc.members(message.params).get("requestId", b""))
        waiting = self._find_subscription(own)
        if waiting is not None:
            asked = waiting.reply.message.id or b"null"
            waiting.relate(message.replace(params=jsonrpc.with_member(message.params, ("requestId",), asked)))
            self.pending.fail(waiting.key, ErrorKind.PROTOCOL, "ended the subscription")

    def _find_subscription(self, raw: bytes) -> PendingRequest | None:
        key = jsonrpc.find_id(self.pending.by_key, raw) if raw else None
        return None if key is None else self.pending.by_key[key]

    def _relay_published(self, message: Message) -> None:
        meta = jsonrpc.members(jsonrpc.members(message.params).get("_meta", b"{}"))
        waiting = self._find_subscription(bytes(meta.get(protocol.META_SUBSCRIPTION, b"")))
        if waiting is not None:
            asked = waiting.reply.message.id or b"null"
            waiting.relate(message.replace(params=jsonrpc.with_member(message.params, _SUBSCRIPTION, asked)))
