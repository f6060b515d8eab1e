"""A link that many clients share: one channel, with ids and progress tokens of riglm's own."""

import logging
from typing import Final

from riglm.adapters.mcp.upstream.channel_link import progress_token
from riglm.adapters.mcp.upstream.deadlines import Deadlines, Patience, Waiting
from riglm.adapters.mcp.upstream.lifeline import Lifeline, Opener
from riglm.domain import jsonrpc, protocol
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Malformed, Message
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import Outlet, Reply, Stream, UpstreamLink

_log = logging.getLogger("riglm.upstream")
_SUBSCRIPTION: Final = ("_meta", protocol.META_SUBSCRIPTION)


class SharedLink(UpstreamLink):
    """Gives every request an id of its own, which also serves as its progress token and names its subscription."""

    def __init__(self, spec: UpstreamSpec, opener: Opener, outlet: Outlet, patience: Patience) -> None:
        """A link that opens with its first request."""
        self.spec = spec
        self._outlet = outlet
        self._line = Lifeline(spec.name, opener, on_line=self._received, on_down=self._down)
        self._deadlines = Deadlines(spec.name, patience, self._expired)
        self._pending: dict[bytes, Waiting] = {}
        self._ids: dict[int, bytes] = {}
        self._last_id = 0

    def request(self, message: Message, reply: Reply) -> None:
        """Forward a request under a new id."""
        self._last_id += 1
        own = b"%d" % self._last_id
        self._pending[own] = self._deadlines.add(reply)
        self._ids[id(reply)] = own
        if b'"progressToken"' in message.line and progress_token(message):
            params = jsonrpc.with_member(message.params, ("_meta", "progressToken"), own)
            self._line.send(message.replace(id=own, params=params).line)
        else:
            self._line.send(message.replace(id=own).line)

    def send(self, message: Message) -> None:
        """Forward a notification; a cancellation names an id of one client's own and means nothing here."""
        if self._line.channel is not None and message.method != "notifications/cancelled":
            self._line.send(message.line)

    def cancel(self, reply: Reply, notice: Message | None) -> None:
        """Tell the upstream, under the id that it knows."""
        own = self._ids.pop(id(reply), None)
        waiting = self._pending.pop(own, None) if own else None
        if own is None or waiting is None:
            return
        self._deadlines.remove(waiting)
        if notice is not None:
            params = jsonrpc.with_member(notice.params, ("requestId",), own)
        else:
            params = b'{"requestId":%b}' % own
        self.send_raw(jsonrpc.notification("notifications/cancelled", params))

    def send_raw(self, message: Message) -> None:
        """Send a message whose ids are already riglm's own."""
        if self._line.channel is not None:
            self._line.send(message.line)

    def listen(self, *, listening: bool) -> None:
        """A channel always listens."""

    def resume(self, last_event_id: bytes, stream: Stream) -> None:
        """A channel has no places to go back to."""
        stream.ended()

    async def close(self) -> None:
        """Close the channel."""
        self._deadlines.close()
        self._pending.clear()
        await self._line.close()

    def _received(self, line: bytes) -> None:
        try:
            message = jsonrpc.decode(line)
        except Malformed:
            _log.warning("skipped a line that is no message", extra={"upstream": self.spec.name, "bytes": len(line)})
            return
        if message.method is not None:
            self._said(message)
            return
        waiting = self._forget(message.id or b"null")
        if waiting is None:
            _log.debug("ignored an answer that nobody waits for", extra={"upstream": self.spec.name})
            return
        asked = waiting.reply.message.id or b"null"
        if waiting.reply.message.method == "subscriptions/listen" and b"subscriptionId" in line and message.result:
            message = message.replace(result=jsonrpc.with_member(message.result, _SUBSCRIPTION, asked))
        waiting.reply.replied(message.replace(id=asked))

    def _forget(self, own: bytes) -> Waiting | None:
        waiting = self._pending.pop(own, None)
        if waiting is not None:
            self._ids.pop(id(waiting.reply), None)
            self._deadlines.remove(waiting)
        return waiting

    def _said(self, message: Message) -> None:
        if message.method == "notifications/progress":
            self._progressed(message)
        elif b"subscriptionId" in message.line:
            self._published(message)
        elif message.method == "notifications/message":
            listening = [one for one in self._pending.values() if b"logLevel" in one.reply.message.line]
            if len(listening) == 1:
                listening[0].progressed()
                listening[0].reply.related(message)
        elif message.id is not None:
            words = "Method not found: requests to the client are not part of this era"
            self.send_raw(jsonrpc.error(message.id, jsonrpc.METHOD_NOT_FOUND, words))
        else:
            self._outlet.unsolicited(self, message)

    def _progressed(self, message: Message) -> None:
        own = bytes(jsonrpc.members(message.params).get("progressToken", b""))
        waiting = self._pending.get(own)
        if waiting is not None:
            waiting.progressed()
            token = progress_token(waiting.reply.message)
            params = jsonrpc.with_member(message.params, ("progressToken",), token)
            waiting.reply.related(message.replace(params=params))

    def _published(self, message: Message) -> None:
        meta = jsonrpc.members(jsonrpc.members(message.params).get("_meta", b"{}"))
        waiting = self._pending.get(bytes(meta.get(protocol.META_SUBSCRIPTION, b"")))
        if waiting is not None:
            asked = waiting.reply.message.id or b"null"
            params = jsonrpc.with_member(message.params, _SUBSCRIPTION, asked)
            waiting.reply.related(message.replace(params=params))

    def _down(self, reason: str) -> None:
        pending, self._pending = self._pending, {}
        self._ids.clear()
        for waiting in pending.values():
            self._deadlines.remove(waiting)
            waiting.reply.failed(ErrorKind.UNAVAILABLE, f"upstream {self.spec.name!r} {reason}")

    def _expired(self, waiting: Waiting) -> None:
        own = self._ids.get(id(waiting.reply))
        if own is not None:
            self._forget(own)
            self.send_raw(jsonrpc.notification("notifications/cancelled", b'{"requestId":%b}' % own))
