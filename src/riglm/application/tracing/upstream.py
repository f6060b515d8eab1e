"""Spans of requests to upstream servers; the trace context is propagated to them."""

from collections.abc import Mapping, Sequence
from typing import Final

from riglm.application.tracing.downstream import (
    CANCELLED,
    TracedConversation,
    TracedModern,
    TracedRequest,
    attributes_of,
    current,
    end,
)
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.session import ProtocolEra
from riglm.domain.trace_context import with_context
from riglm.domain.upstream import UpstreamHealth
from riglm.ports.downstream import Caller, HandshakeConnection, ModernRequestHandler
from riglm.ports.telemetry import Span, TracerPort
from riglm.ports.upstream import (
    EventPosition,
    OutboundRequest,
    ResumedStreamHandler,
    ServerMessageHandler,
    UpstreamLink,
    UpstreamPort,
)

_WIRES: Final = {"stdio": "pipe", "http": "tcp", "sse": "tcp"}
_HANDSHAKE: Final = "initialize"
"""Methods that are forwarded unchanged, because they are stored and repeated to replacement servers."""


class TracedUpstream(UpstreamPort):
    """A server whose links make spans."""

    def __init__(self, upstream: UpstreamPort, tracer: TracerPort) -> None:
        self.spec = upstream.spec
        self._upstream = upstream
        self._tracer = tracer
        self._stateless: UpstreamLink | None = None

    def connect(self, message_handler: ServerMessageHandler) -> UpstreamLink:
        overheard = _Outlet(message_handler)
        return overheard.belongs_to(TracedLink(self._upstream.connect(overheard), self._tracer))

    def stateless(self, message_handler: ServerMessageHandler) -> UpstreamLink:
        if self._stateless is None:
            overheard = _Outlet(message_handler)
            link = TracedLink(self._upstream.stateless(overheard), self._tracer)
            self._stateless = overheard.belongs_to(link)
        return self._stateless

    def supports(self, era: ProtocolEra) -> bool | None:
        return self._upstream.supports(era)

    def learned(self, era: ProtocolEra, *, supported: bool) -> None:
        self._upstream.learned(era, supported=supported)

    def health(self) -> UpstreamHealth:
        return self._upstream.health()

    def hold(self, *, on: bool) -> None:
        self._upstream.hold(on=on)

    async def close(self) -> None:
        await self._upstream.close()


class TracedLink(UpstreamLink):
    """A link that creates a span for each request and propagates its trace context."""

    def __init__(self, link: UpstreamLink, tracer: TracerPort) -> None:
        self.spec = link.spec
        self._link = link
        self._tracer = tracer
        self._legs: dict[int, _Leg] = {}

    @property
    def resumable(self) -> bool:
        return self._link.resumable

    @property
    def ticket(self) -> bytes:
        return self._link.ticket

    def request(self, message: Message, reply: OutboundRequest) -> None:
        client = current.get()
        within = client.span if client is not None and not client.is_over else None
        attributes = {**attributes_of(message, _WIRES[self.spec.kind]), "riglm.upstream": self.spec.name}
        span = self._tracer.asked(attributes["mcp.method.name"], attributes, within)
        sent = message if message.method == _HANDSHAKE else with_context(message, span.carrier())
        leg = self._legs[id(reply)] = _Leg(self._legs, sent, reply, span, client)
        self._link.request(sent, leg)

    def send(self, message: Message) -> None:
        self._link.send(message)

    def cancel(self, reply: OutboundRequest, notice: Message | None) -> None:
        leg = self._legs.pop(id(reply), None)
        self._link.cancel(reply if leg is None else leg, notice)
        if leg is not None:
            leg.span.ended(CANCELLED)

    def listen(self, *, listening: bool) -> None:
        self._link.listen(listening=listening)

    def resume(self, last_event_id: bytes, stream: ResumedStreamHandler) -> None:
        self._link.resume(last_event_id, stream)

    def adopt(self, ticket: bytes, handshake: Message, state_requests: Sequence[Message]) -> bool:
        return self._link.adopt(ticket, handshake, state_requests)

    def detach(self) -> None:
        self._link.detach()

    async def close(self) -> None:
        await self._link.close()


class _Leg(OutboundRequest):
    """One request on its way to a server and back: what its answer sets off belongs to the same client's request."""

    __slots__ = ("_client", "_legs", "_reply", "headers", "message", "resumable", "span")

    def __init__(
        self, legs: "dict[int, _Leg]", sent: Message, reply: OutboundRequest, span: Span, client: TracedRequest | None
    ) -> None:
        self.message = sent
        self.headers: Mapping[bytes, bytes] = reply.headers
        self.resumable = reply.resumable
        self.span = span
        self._legs = legs
        self._reply = reply
        self._client = client

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        self._reply.related(message, event)

    def primed(self, event: EventPosition) -> None:
        self._reply.primed(event)

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        self._over()
        end(self.span, self.message, message)
        before = current.set(self._client)
        try:
            self._reply.replied(message, status, event)
        finally:
            current.reset(before)

    def failed(self, kind: ErrorKind, words: str) -> None:
        self._over()
        self.span.ended(kind.value)
        before = current.set(self._client)
        try:
            self._reply.failed(kind, words)
        finally:
            current.reset(before)

    def interrupted(self) -> None:
        self._over()
        self.span.ended(CANCELLED)
        self._reply.interrupted()

    def _over(self) -> None:
        if self._legs.get(id(self._reply)) is self:
            del self._legs[id(self._reply)]


class _Outlet(ServerMessageHandler):
    """Forwards server messages of the wrapped link as messages of this link."""

    def __init__(self, message_handler: ServerMessageHandler) -> None:
        self._message_handler = message_handler
        self._link: UpstreamLink | None = None

    def belongs_to(self, link: UpstreamLink) -> UpstreamLink:
        self._link = link
        return link

    def unsolicited(self, link: UpstreamLink, message: Message, event: EventPosition | None = None) -> None:
        self._message_handler.unsolicited(self._link or link, message, event)


class Traces:
    """Around each part, one of the same port that makes spans and passes everything on."""

    def __init__(self, tracer: TracerPort) -> None:
        """The spans are made by `tracer`."""
        self._tracer = tracer

    def upstream(self, upstream: UpstreamPort) -> UpstreamPort:
        """A server whose requests are spans."""
        return TracedUpstream(upstream, self._tracer)

    def conversation(self, conversation: HandshakeConnection, caller: Caller) -> HandshakeConnection:
        """A conversation whose requests are spans."""
        return TracedConversation(conversation, caller, self._tracer)

    def modern(self, service: ModernRequestHandler) -> ModernRequestHandler:
        """A service of the modern era whose requests are spans."""
        return TracedModern(service, self._tracer)
