"""The link that all requests of the modern era share."""

from typing import Final

from riglm.adapters.mcp.upstream.channel import Channel, Opener
from riglm.adapters.mcp.upstream.condition import ChannelsCondition
from riglm.adapters.mcp.upstream.deadlines import Patience
from riglm.adapters.mcp.upstream.shared_channel import SharedChannel
from riglm.domain import jsonrpc, protocol
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import Outlet, Reply, Stream, UpstreamLink

_SUBSCRIPTION: Final = ("_meta", protocol.META_SUBSCRIPTION)


class SharedLink(SharedChannel, UpstreamLink):
    """A request's number also names its subscription."""

    def __init__(
        self,
        spec: UpstreamSpec,
        opener: Opener,
        outlet: Outlet,
        patience: Patience,
        condition: ChannelsCondition | None = None,
    ) -> None:
        """A link that opens with its first request."""
        super().__init__(spec, opener, patience, condition)
        self._outlet = outlet
        self._answers = 0
        self._refusals = 0

    def request(self, message: Message, reply: Reply) -> None:
        """Forward a request under a new id."""
        self.ask(message, reply)

    def send(self, message: Message) -> None:
        """Forward a notification; a cancellation names an id of one client's own and means nothing here."""
        if message.method != "notifications/cancelled":
            self.tell(message)

    def cancel(self, reply: Reply, notice: Message | None) -> None:
        """Send it to the upstream, under the id that it knows."""
        self.give_up(reply, notice)

    def listen(self, *, listening: bool) -> None:
        """A channel always listens."""

    def resume(self, last_event_id: bytes, stream: Stream) -> None:
        """A channel has no places to go back to."""
        stream.ended()

    def release(self) -> Channel | None:
        """The open channel, for clients of the handshake era; None when it is none that they can use.

        A server that refused all it was asked is as good as new. One that understood something may hold its pipe to
        this era, and one that answered nothing may hang: those are closed.
        """
        channel = self._line.release() if not self.pending else None
        if channel is None or 0 < self._answers == self._refusals:
            return channel
        self.discard(channel)
        return None

    def discard(self, channel: Channel) -> None:
        """Close a channel that was released, in the background."""
        self._line.discard(channel)

    async def opened(self, channel: Channel) -> None:
        """A new process has not answered anything yet."""
        self._answers = self._refusals = 0

    def answer(self, asked: Message, answer: Message) -> Message:
        """Put the client's own id into the end of a subscription."""
        self._answers += 1
        self._refusals += bool(answer.error)
        if asked.method == "subscriptions/listen" and answer.result and b"subscriptionId" in answer.line:
            asked_id = asked.id or b"null"
            return answer.replace(result=jsonrpc.with_member(answer.result, _SUBSCRIPTION, asked_id))
        return answer

    def unawaited(self, answer: Message) -> None:
        """A late response shows just as much about the server."""
        self._answers += 1
        super().unawaited(answer)

    def said(self, message: Message) -> None:
        """Find the request that a message belongs to: in this era there is hardly anything else."""
        if b"subscriptionId" in message.line:
            self._published(message)
        elif message.method == "notifications/message":
            listening = [one for one in self.pending if b"logLevel" in one.reply.message.line]
            if len(listening) == 1:
                self.relate(listening[0], message)
        elif message.id is not None:
            words = "Method not found: requests to the client are not part of this era"
            self.tell(jsonrpc.error(message.id, jsonrpc.METHOD_NOT_FOUND, words))
        elif message.method == "notifications/cancelled":
            self._ended(message)
        elif self.pending.only is not None:
            self.relate(self.pending.only, message)
        else:
            self._outlet.unsolicited(self, message)

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
