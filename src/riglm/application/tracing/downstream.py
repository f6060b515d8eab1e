"""Spans of clients' requests, around what serves them."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Final

from riglm.domain import jsonrpc, request_params, trace_context
from riglm.domain.jsonrpc import Message
from riglm.domain.request_params import RequestEnvelope
from riglm.domain.session import Session, Transport
from riglm.ports.downstream import (
    NO_HEADERS,
    Caller,
    ClientResponseSink,
    ConnectionHandoff,
    HandshakeConnection,
    InFlightRequest,
    ModernRequestHandler,
)
from riglm.ports.telemetry import Span, TracerPort
from riglm.ports.upstream import EventPosition, ResumedStreamHandler

CANCELLED: Final = "cancelled"
TOOL_ERROR: Final = "tool_error"
_MAX_NAME_LENGTH: Final = 128
_TARGETS: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_WIRES: Final = {Transport.STDIO: "pipe", Transport.HTTP: "tcp", Transport.SSE: "tcp"}

current: "Final[ContextVar[TracedRequest | None]]" = ContextVar("riglm_traced_request", default=None)
"""The client's request that the running code works for."""


def attributes_of(message: Message, wire: str) -> dict[str, str]:
    """Return the span attributes of a request: its method, and the name of the tool or prompt. No other content."""
    method = message.method or ""
    found = {"mcp.method.name": method[:_MAX_NAME_LENGTH], "network.transport": wire}
    if method == "tools/call":
        found["gen_ai.operation.name"] = "execute_tool"
    target = _TARGETS.get(method)
    name = jsonrpc.text(request_params.read(message).name) if target else None
    if target and name:
        found[target] = name[:_MAX_NAME_LENGTH]
    return found


def end(span: Span, asked: Message, answer: Message) -> None:
    """End a span by the answer."""
    if answer.error:
        code = jsonrpc.error_code(answer)
        span.ended("error" if code is None else str(code), code)
    else:
        failed = asked.method == "tools/call" and jsonrpc.is_tool_error(answer.result)
        span.ended(TOOL_ERROR if failed else None)


class TracedRequest(ClientResponseSink):
    """Passes on what comes back for a request, and ends its span."""

    __slots__ = ("_on_end", "_sink", "asked", "in_flight", "is_over", "span")

    def __init__(
        self,
        tracer: TracerPort,
        asked: Message,
        sink: ClientResponseSink,
        transport: Transport,
        on_end: "Callable[[TracedRequest], None]",
        version: str | None = None,
    ) -> None:
        """A request that came over `transport`; `version` is the protocol revision, where that is known."""
        attributes = attributes_of(asked, _WIRES[transport])
        if version:
            attributes["mcp.protocol.version"] = version[:_MAX_NAME_LENGTH]
        self.asked = asked
        self.span = tracer.served(attributes["mcp.method.name"], attributes, trace_context.read(asked))
        self.in_flight: InFlightRequest | None = None
        self.is_over = False
        self._sink = sink
        self._on_end = on_end

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        self._sink.related(message, event)

    def primed(self, event: EventPosition) -> None:
        self._sink.primed(event)

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        self._sink.replied(message, status, event)
        if self._is_first_end():
            end(self.span, self.asked, message)

    def interrupted(self) -> None:
        self._sink.interrupted()
        self.given_up()

    def given_up(self) -> None:
        """No answer will come this way."""
        if self._is_first_end():
            self.span.ended(CANCELLED)

    def _is_first_end(self) -> bool:
        is_first, self.is_over = not self.is_over, True
        if is_first:
            self._on_end(self)
        return is_first


class TracedConversation(HandshakeConnection):
    """A conversation each of whose requests is a span."""

    __slots__ = ("_caller", "_conversation", "_open", "_tracer")

    def __init__(self, conversation: HandshakeConnection, caller: Caller, tracer: TracerPort) -> None:
        self._conversation = conversation
        self._caller = caller
        self._tracer = tracer
        self._open: set[TracedRequest] = set()

    @property
    def resumable(self) -> bool:
        return self._conversation.resumable

    @property
    def session(self) -> Session:
        return self._conversation.session

    @property
    def tickets(self) -> Mapping[str, bytes]:
        return self._conversation.tickets

    def received(
        self,
        message: Message,
        sink: ClientResponseSink,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
        *,
        resumable: bool = False,
    ) -> InFlightRequest | None:
        receive = partial(self._conversation.received, headers=headers, resumable=resumable)
        if not message.is_request:
            receive(message, sink)
            if message.method == "notifications/cancelled":
                self._end(given_up=True)
            return None
        request = TracedRequest(self._tracer, message, sink, self._caller.transport, self._open.discard)
        self._open.add(request)
        before = current.set(request)
        try:
            request.in_flight = receive(message, request)
        finally:
            current.reset(before)
        return request.in_flight

    def listen(self, *, listening: bool) -> None:
        self._conversation.listen(listening=listening)

    def resume(self, last_event_id: bytes, stream: ResumedStreamHandler) -> None:
        self._conversation.resume(last_event_id, stream)

    def adopt(self, handoff: ConnectionHandoff) -> bool:
        return self._conversation.adopt(handoff)

    def heard(self, notice: Message) -> None:
        self._conversation.heard(notice)

    def on_remote_activity(self) -> None:
        self._conversation.on_remote_activity()

    def detach(self) -> None:
        self._conversation.detach()

    async def close(self) -> None:
        try:
            await self._conversation.close()
        finally:
            self._end(given_up=False)

    def _end(self, *, given_up: bool) -> None:
        """End the spans of requests that get no answer: those that the client gave up, or all."""
        for request in list(self._open):
            if not given_up or (request.in_flight is not None and request.in_flight.done):
                request.given_up()


class TracedModern(ModernRequestHandler):
    """A service of the modern era each of whose requests is a span."""

    def __init__(self, service: ModernRequestHandler, tracer: TracerPort) -> None:
        self._service = service
        self._tracer = tracer
        self._open: dict[int, TracedRequest] = {}

    def received(
        self,
        message: Message,
        envelope: RequestEnvelope,
        sink: ClientResponseSink,
        caller: Caller,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
    ) -> InFlightRequest:
        request = TracedRequest(self._tracer, message, sink, caller.transport, self._ended, envelope.version)
        before = current.set(request)
        try:
            in_flight = self._service.received(message, envelope, request, caller, headers)
        finally:
            current.reset(before)
        if not request.is_over:
            request.in_flight = in_flight
            self._open[id(in_flight)] = request
        return in_flight

    def handle_notification(self, message: Message) -> None:
        self._service.handle_notification(message)

    def cancel(self, in_flight: InFlightRequest, notice: Message | None = None) -> None:
        self._service.cancel(in_flight, notice)
        request = self._open.get(id(in_flight))
        if request is not None:
            request.given_up()

    def input_schema(self, tool: str) -> bytes | None:
        return self._service.input_schema(tool)

    def _ended(self, request: TracedRequest) -> None:
        self._open.pop(id(request.in_flight), None)
