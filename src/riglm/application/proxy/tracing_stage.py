"""The stage that traces requests: a span for each, and one within it for each request to a server."""

from typing import Final

from riglm.application.proxy.parts import ProxyParts
from riglm.application.proxy.request import Request
from riglm.application.proxy.stage import Outcome, Stage
from riglm.domain import jsonrpc, request_params
from riglm.domain.jsonrpc import Message
from riglm.domain.session import Transport
from riglm.ports.telemetry import Span, TracerPort
from riglm.ports.upstream import UpstreamLink

CANCELLED: Final = "cancelled"
_TOOL_ERROR: Final = "tool_error"
_MAX_NAME_LENGTH: Final = 128
_TARGETS: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_TRANSPORTS: Final = {Transport.STDIO: "pipe", Transport.HTTP: "tcp", Transport.SSE: "tcp"}
_UPSTREAM_TRANSPORTS: Final = {"stdio": "pipe", "http": "tcp", "sse": "tcp"}


class TracingStage(Stage):
    """Starts the span of a client's request, and ends it by the reply."""

    def __init__(self, parts: ProxyParts) -> None:
        self._tracer = parts.tracer

    @classmethod
    def is_used(cls, parts: ProxyParts) -> bool:
        return parts.tracer is not None

    def before(self, request: Request) -> Outcome:
        if self._tracer is None:
            return None
        attributes = _attributes(request.asked, _TRANSPORTS[request.caller.transport])
        version = request.envelope.version if request.envelope is not None else None
        if version:
            attributes["mcp.protocol.version"] = version[:_MAX_NAME_LENGTH]
        carrier = request_params.read_trace_context(request.asked)
        span = self._tracer.served(attributes["mcp.method.name"], attributes, carrier)
        request.span = RequestSpan(self._tracer, span)
        return None

    def after(self, request: Request, reply: Message | None) -> Outcome:
        if request.span is not None:
            request.span.end(request.method, reply)
        return reply


class RequestSpan:
    """The span of a client's request."""

    __slots__ = ("_span", "_tracer")

    def __init__(self, tracer: TracerPort, span: Span) -> None:
        self._tracer = tracer
        self._span = span

    def start_upstream(self, message: Message, link: UpstreamLink) -> tuple["UpstreamSpan", Message]:
        """Start the span of a request to a server; returns the request with the trace context of the span.

        `initialize` is not changed, because it is stored and repeated to replacement servers.
        """
        attributes = _attributes(message, _UPSTREAM_TRANSPORTS[link.spec.kind]) | {"riglm.upstream": link.spec.name}
        span = self._tracer.asked(attributes["mcp.method.name"], attributes, self._span)
        if message.method != "initialize":
            message = request_params.with_trace_context(message, span.carrier())
        return UpstreamSpan(span, message.method), message

    def end(self, method: str, reply: Message | None) -> None:
        """End the span; without a reply, the request was cancelled."""
        if reply is None:
            self._span.ended(CANCELLED)
        else:
            _end(self._span, method, reply)


class UpstreamSpan:
    """The span of a request to a server."""

    __slots__ = ("_method", "_span")

    def __init__(self, span: Span, method: str | None) -> None:
        self._span = span
        self._method = method

    def end(self, reply: Message) -> None:
        """End the span by the reply."""
        _end(self._span, self._method, reply)

    def fail(self, reason: str) -> None:
        """End the span of a request without a reply."""
        self._span.ended(reason)


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


def _end(span: Span, method: str | None, reply: Message) -> None:
    if reply.error:
        code = jsonrpc.error_code(reply)
        span.ended("error" if code is None else str(code), code)
    else:
        failed = method == "tools/call" and jsonrpc.is_tool_error(reply)
        span.ended(_TOOL_ERROR if failed else None)
