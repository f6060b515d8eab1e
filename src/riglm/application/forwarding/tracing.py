"""Spans of client requests, and of the requests to upstream servers that belong to them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from riglm.domain import jsonrpc, request_params
from riglm.domain.jsonrpc import Message
from riglm.domain.session import Transport
from riglm.ports.downstream import ClientResponseSink, ForwardingSink, InFlightRequest
from riglm.ports.telemetry import Span, TracerPort
from riglm.ports.upstream import EventPosition, UpstreamLink

CANCELLED: Final = "cancelled"
_TOOL_ERROR: Final = "tool_error"
_MAX_NAME_LENGTH: Final = 128
_TARGETS: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_TRANSPORTS: Final = {Transport.STDIO: "pipe", Transport.HTTP: "tcp", Transport.SSE: "tcp"}
_UPSTREAM_TRANSPORTS: Final = {"stdio": "pipe", "http": "tcp", "sse": "tcp"}

current: "Final[ContextVar[TracedRequest | None]]" = ContextVar("riglm_traced_request", default=None)
"""The client request that the running code serves."""


def _attributes(message: Message, transport: str) -> dict[str, str]:
    """Return the span attributes of a request: its method, and the name of the tool or prompt. No other content."""
    method = message.method or ""
    found = {"mcp.method.name": method[:_MAX_NAME_LENGTH], "network.transport": transport}
    if method == "tools/call":
        found["gen_ai.operation.name"] = "execute_tool"
    target = _TARGETS.get(method)
    name = jsonrpc.text(request_params.read(message).name) if target else None
    if target and name:
        found[target] = name[:_MAX_NAME_LENGTH]
    return found


def _end(span: Span, method: str | None, answer: Message) -> None:
    if answer.error:
        code = jsonrpc.error_code(answer)
        span.ended("error" if code is None else str(code), code)
    else:
        failed = method == "tools/call" and jsonrpc.is_tool_error(answer)
        span.ended(_TOOL_ERROR if failed else None)


class RequestTracer:
    """Creates the spans of one client connection, or of all modern clients."""

    def __init__(self, tracer: TracerPort) -> None:
        self._tracer = tracer
        self._open: set[TracedRequest] = set()

    def start(
        self, message: Message, sink: ClientResponseSink, transport: Transport, version: str | None = None
    ) -> "TracedRequest":
        """Start the span of a client request; the result replaces `sink` and is the `current` request in its task."""
        attributes = _attributes(message, _TRANSPORTS[transport])
        if version:
            attributes["mcp.protocol.version"] = version[:_MAX_NAME_LENGTH]
        span = self._tracer.served(
            attributes["mcp.method.name"], attributes, request_params.read_trace_context(message)
        )
        request = TracedRequest(self._tracer, span, message, sink, self._open)
        self._open.add(request)
        return request

    def end_cancelled(self) -> None:
        """End the spans of requests that were cancelled, because they get no response."""
        for request in list(self._open):
            if request.in_flight is not None and request.in_flight.done:
                request.end_without_response()

    def end_all(self) -> None:
        """End all spans, when the connection is closed."""
        for request in list(self._open):
            request.end_without_response()


class TracedRequest(ForwardingSink):
    """Forwards the response to a request, and ends its span."""

    __slots__ = ("_method", "_open", "_span", "_tracer", "in_flight")

    def __init__(
        self, tracer: TracerPort, span: Span, message: Message, sink: ClientResponseSink, open_: "set[TracedRequest]"
    ) -> None:
        super().__init__(sink)
        self.in_flight: InFlightRequest | None = None
        self._tracer = tracer
        self._span = span
        self._method = message.method
        self._open = open_

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this the `current` request."""
        before = current.set(self)
        try:
            yield
        finally:
            current.reset(before)

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        self._sink.replied(message, status, event)
        if self._is_first_end():
            _end(self._span, self._method, message)

    def interrupted(self) -> None:
        self._sink.interrupted()
        self.end_without_response()

    def end_without_response(self) -> None:
        """End the span of a request that was cancelled or interrupted."""
        if self._is_first_end():
            self._span.ended(CANCELLED)

    def start_upstream(self, message: Message, link: UpstreamLink) -> tuple["UpstreamSpan", Message]:
        """Start the span of a request to an upstream server; returns the request with the span's trace context.

        `initialize` is not changed, because it is stored and repeated to replacement servers.
        """
        attributes = _attributes(message, _UPSTREAM_TRANSPORTS[link.spec.kind]) | {"riglm.upstream": link.spec.name}
        parent = self._span if self in self._open else None
        span = self._tracer.asked(attributes["mcp.method.name"], attributes, parent)
        if message.method != "initialize":
            message = request_params.with_trace_context(message, span.carrier())
        return UpstreamSpan(self, span, message.method), message

    def _is_first_end(self) -> bool:
        is_first = self in self._open
        self._open.discard(self)
        return is_first


class UpstreamSpan:
    """The span of a request to an upstream server."""

    __slots__ = ("_method", "_span", "client")

    def __init__(self, client: TracedRequest, span: Span, method: str | None) -> None:
        self.client = client
        self._span = span
        self._method = method

    def end(self, answer: Message) -> None:
        """End the span by the response."""
        _end(self._span, self._method, answer)

    def fail(self, reason: str) -> None:
        """End the span of a request without a response."""
        self._span.ended(reason)
