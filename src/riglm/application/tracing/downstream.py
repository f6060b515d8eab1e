"""Spans of clients' requests, around what serves them."""

from collections.abc import Mapping
from functools import partial

from riglm.application.tracing.requests import TracedRequest, current
from riglm.domain.jsonrpc import Message
from riglm.domain.parameters import Envelope
from riglm.domain.session import Session
from riglm.ports.downstream import (
    NO_HEADERS,
    Caller,
    Carried,
    Conversation,
    ModernService,
    ReplySink,
    Underway,
)
from riglm.ports.telemetry import TracerPort
from riglm.ports.upstream import Stream


class TracedConversation(Conversation):
    """A conversation each of whose requests is a span."""

    __slots__ = ("_caller", "_conversation", "_open", "_tracer")

    def __init__(self, conversation: Conversation, caller: Caller, tracer: TracerPort) -> None:
        self._conversation = conversation
        self._caller = caller
        self._tracer = tracer
        self._open: set[TracedRequest] = set()

    @property
    def resumable(self) -> bool:
        """As the conversation says."""
        return self._conversation.resumable

    @property
    def session(self) -> Session:
        """As the conversation says."""
        return self._conversation.session

    @property
    def tickets(self) -> Mapping[str, bytes]:
        """As the conversation says."""
        return self._conversation.tickets

    def received(
        self, message: Message, sink: ReplySink, headers: Mapping[bytes, bytes] = NO_HEADERS, *, resumable: bool = False
    ) -> Underway | None:
        """Take a message; a request in a span."""
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
            request.underway = receive(message, request)
        finally:
            current.reset(before)
        return request.underway

    def listen(self, *, listening: bool) -> None:
        """Pass it on."""
        self._conversation.listen(listening=listening)

    def resume(self, last_event_id: bytes, stream: Stream) -> None:
        """Pass it on."""
        self._conversation.resume(last_event_id, stream)

    def adopt(self, carried: Carried) -> bool:
        """Pass it on."""
        return self._conversation.adopt(carried)

    def heard(self, notice: Message) -> None:
        """Pass it on."""
        self._conversation.heard(notice)

    def moved_on(self) -> None:
        """Pass it on."""
        self._conversation.moved_on()

    def let_go(self) -> None:
        """Pass it on."""
        self._conversation.let_go()

    async def close(self) -> None:
        """Close it; whatever is open then is given up."""
        try:
            await self._conversation.close()
        finally:
            self._end(given_up=False)

    def _end(self, *, given_up: bool) -> None:
        """End the spans of requests that get no answer: those that the client gave up, or all."""
        for request in list(self._open):
            if not given_up or (request.underway is not None and request.underway.done):
                request.given_up()


class TracedModern(ModernService):
    """A service of the modern era each of whose requests is a span."""

    def __init__(self, service: ModernService, tracer: TracerPort) -> None:
        self._service = service
        self._tracer = tracer
        self._open: dict[int, TracedRequest] = {}

    def received(
        self,
        message: Message,
        envelope: Envelope,
        sink: ReplySink,
        caller: Caller,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
    ) -> Underway:
        """Take a request in a span."""
        request = TracedRequest(self._tracer, message, sink, caller.transport, self._ended, envelope.version)
        before = current.set(request)
        try:
            underway = self._service.received(message, envelope, request, caller, headers)
        finally:
            current.reset(before)
        if not request.is_over:
            request.underway = underway
            self._open[id(underway)] = request
        return underway

    def told(self, message: Message) -> None:
        """Pass it on."""
        self._service.told(message)

    def cancel(self, underway: Underway, notice: Message | None = None) -> None:
        """Pass it on; the span is over."""
        self._service.cancel(underway, notice)
        request = self._open.get(id(underway))
        if request is not None:
            request.given_up()

    def input_schema(self, tool: str) -> bytes | None:
        """As the service says."""
        return self._service.input_schema(tool)

    def _ended(self, request: TracedRequest) -> None:
        self._open.pop(id(request.underway), None)
