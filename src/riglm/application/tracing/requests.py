"""The span of a client's request: known to all that is done for it, and ended by its answer."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from riglm.domain import jsonrpc, parameters, trace_context
from riglm.domain.jsonrpc import Message
from riglm.domain.session import Transport
from riglm.ports.downstream import ReplySink, Underway
from riglm.ports.telemetry import Span, TracerPort
from riglm.ports.upstream import EventMark

CANCELLED: Final = "cancelled"
TOOL_ERROR: Final = "tool_error"
_LONGEST_NAME: Final = 128
_TARGETS: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_WIRES: Final = {Transport.STDIO: "pipe", Transport.HTTP: "tcp", Transport.SSE: "tcp"}

current: "Final[ContextVar[TracedRequest | None]]" = ContextVar("riglm_traced_request", default=None)
"""The client's request that the running code works for."""


def attributes_of(message: Message, wire: str) -> dict[str, str]:
    """What a span says of a request: its method, and the name of the tool or prompt. Nothing else that is in it."""
    method = message.method or ""
    found = {"mcp.method.name": method[:_LONGEST_NAME], "network.transport": wire}
    if method == "tools/call":
        found["gen_ai.operation.name"] = "execute_tool"
    target = _TARGETS.get(method)
    name = jsonrpc.text(parameters.read(message).name) if target else None
    if target and name:
        found[target] = name[:_LONGEST_NAME]
    return found


def end(span: Span, asked: Message, answer: Message) -> None:
    """End a span by the answer."""
    if answer.error:
        code = jsonrpc.error_code(answer)
        span.ended("error" if code is None else str(code), code)
    else:
        failed = asked.method == "tools/call" and jsonrpc.is_tool_error(answer.result)
        span.ended(TOOL_ERROR if failed else None)


class TracedRequest(ReplySink):
    """Passes on what comes back for a request, and ends its span."""

    __slots__ = ("_on_end", "_sink", "asked", "is_over", "span", "underway")

    def __init__(
        self,
        tracer: TracerPort,
        asked: Message,
        sink: ReplySink,
        transport: Transport,
        on_end: "Callable[[TracedRequest], None]",
        version: str | None = None,
    ) -> None:
        """A request that came over `transport`; `version` is the protocol revision, where that is known."""
        attributes = attributes_of(asked, _WIRES[transport])
        if version:
            attributes["mcp.protocol.version"] = version[:_LONGEST_NAME]
        self.asked = asked
        self.span = tracer.served(attributes["mcp.method.name"], attributes, trace_context.read(asked))
        self.underway: Underway | None = None
        self.is_over = False
        self._sink = sink
        self._on_end = on_end

    def related(self, message: Message, event: EventMark | None = None) -> None:
        """Pass it on."""
        self._sink.related(message, event)

    def primed(self, event: EventMark) -> None:
        """Pass it on."""
        self._sink.primed(event)

    def replied(self, message: Message, status: int = 200, event: EventMark | None = None) -> None:
        """Pass the answer on; that is the end."""
        self._sink.replied(message, status, event)
        if self._is_first_end():
            end(self.span, self.asked, message)

    def interrupted(self) -> None:
        """The client will take the stream up by itself: what comes there is another request."""
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
