"""Requests of the modern era that are shown what the filter chooses."""

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from riglm.application.filter_middleware.list_changes import ToolListSubscriptions, announcing, offering
from riglm.application.filter_middleware.meta_tool_calls import MetaToolCall, MetaToolCalls
from riglm.application.filter_middleware.middleware import FilterMiddleware
from riglm.application.filter_middleware.paged_lists import PagedListRequest
from riglm.application.filter_middleware.response_sinks import ErrorTransformingSink, ListChangedSink, TransformingSink
from riglm.application.forwarding.proxied_request import ProxiedRequest
from riglm.application.forwarding.services import RequestServices, tool_name
from riglm.application.forwarding.tracing import RequestTracer
from riglm.domain import jsonrpc, request_params
from riglm.domain.jsonrpc import Message
from riglm.domain.request_params import RequestEnvelope
from riglm.domain.session import ACCESS, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.domain.tool import ToolCatalog
from riglm.ports.downstream import NO_HEADERS, Caller, ClientResponseSink, InFlightRequest, ModernRequestHandler

KNOWN_SECONDS: Final = 60.0
"""Seconds for which meta-tools use a catalog without requesting it again."""


class FilteringModernHandler(ModernRequestHandler):
    """Requests of the modern era, with the tool filter if there is one.

    Subclasses forward what the filter accepts to one or several upstream servers.
    """

    _showing: FilterMiddleware
    _meta_calls: MetaToolCalls

    def __init__(self, services: RequestServices, showing: FilterMiddleware | None, access: str = "") -> None:
        """Without `showing`, tools are not filtered. All callers have the rights `access`."""
        self._any_session = Session(
            started_at=0.0,
            era=ProtocolEra.MODERN,
            transport=Transport.HTTP,
            method=IdentificationMethod.ADDRESS,
            metadata={ACCESS: access},
        )
        self.listeners = ToolListSubscriptions()
        self._filters = showing is not None
        self._services = services if showing is None else showing.observed()
        self._catalog: ToolCatalog | None = None
        self._known_until = 0.0
        self._changes = 0
        self._tracer = None if services.tracer is None else RequestTracer(services.tracer)
        if showing is not None:
            self._showing = showing
            self._meta_calls = MetaToolCalls(showing)
            showing.follow(self.listeners.follow)

    @abstractmethod
    def accept(
        self,
        message: Message,
        envelope: RequestEnvelope,
        sink: ClientResponseSink,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
        session: Session | None = None,
    ) -> InFlightRequest:
        """Process a request that the filter accepted; calls and lists of tools have a session."""

    @abstractmethod
    def name_patterns(self, tool: str) -> tuple[str, ...]:
        """Return all names under which clients may know the tool that `tool` reaches."""

    @abstractmethod
    def notify_upstream(self, message: Message) -> None:
        """Forward a notification."""

    @abstractmethod
    def cancel_upstream(self, exchange: ProxiedRequest, notice: Message | None) -> None:
        """Cancel a request in flight."""

    @abstractmethod
    def listed_schema(self, tool: str) -> bytes | None:
        """Return the raw `inputSchema` of a listed tool, by the name that clients use."""

    async def close_upstream(self) -> None:
        """Cancel what is in flight."""

    def received(
        self,
        message: Message,
        envelope: RequestEnvelope,
        sink: ClientResponseSink,
        caller: Caller,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
    ) -> InFlightRequest:
        if self._tracer is None:
            return self._receive(message, envelope, sink, caller, headers)
        traced = self._tracer.start(message, sink, caller.transport, envelope.version)
        with traced.active():
            traced.in_flight = self._receive(message, envelope, traced, caller, headers)
        return traced.in_flight

    def _receive(
        self,
        message: Message,
        envelope: RequestEnvelope,
        sink: ClientResponseSink,
        caller: Caller,
        headers: Mapping[bytes, bytes],
    ) -> InFlightRequest:
        refused = self._services.misreading(message)
        if refused is not None:
            return _answered(message, sink, refused, 400)
        asked = _Asked(self, message, envelope, caller, headers)
        if not self._filters:
            if message.method in ("tools/call", "tools/list"):
                asked.session = self._session_of(asked)
            return asked.forward(message, sink)
        match message.method:
            case "tools/list":
                return self._filter_list(
                    asked, ErrorTransformingSink(sink, self._showing.completed) if self._showing.adds else sink
                )
            case "tools/call":
                return self._filter_call(asked, sink)
            case "server/discover":
                self._services.sessions.discovered(caller, envelope.client, envelope.meta)
                if self._announces(asked) or self._showing.adds:
                    sink = TransformingSink(sink, partial(self._described, asked))
            case "subscriptions/listen":
                return self._filter_listen(asked, sink)
        return asked.forward(message, sink)

    def handle_notification(self, message: Message) -> None:
        if self._services.misreading(message) is None:
            self.notify_upstream(message)

    def cancel(self, in_flight: InFlightRequest, notice: Message | None = None) -> None:
        if isinstance(in_flight, PagedListRequest):
            if not in_flight.done and isinstance(in_flight.in_flight, ProxiedRequest):
                self.cancel(in_flight.in_flight, notice)
            in_flight.give_up()
        elif isinstance(in_flight, MetaToolCall):
            if in_flight.forwarded is None:
                self._meta_calls.cancel(in_flight)
            else:
                self.cancel(in_flight.forwarded, notice)
                in_flight.cancelled()
        elif isinstance(in_flight, ProxiedRequest) and not in_flight.done:
            self.cancel_upstream(in_flight, notice)
            in_flight.cancelled()
        if self._tracer is not None:
            self._tracer.end_cancelled()

    def input_schema(self, tool: str) -> bytes | None:
        if self._filters:
            denial = partial(self._showing.filtering.denial, self._any_session)
            if any(map(denial, self.name_patterns(tool))):
                return None
        return self.listed_schema(tool)

    async def close(self) -> None:
        """Cancel everything in flight."""
        if self._filters:
            await self._meta_calls.close()
        await self.close_upstream()

    def _filter_list(self, asked: "_Asked", sink: ClientResponseSink) -> InFlightRequest:
        has_cursor = jsonrpc.members(asked.message.params).get("cursor") is not None
        session = asked.session = self._session_of(asked, starts=not has_cursor)
        if not self._showing.filtering.is_on:
            return asked.forward(
                asked.message, sink if has_cursor else TransformingSink(sink, partial(self._passed, session))
            )
        if has_cursor:
            return asked.forward(
                asked.message, TransformingSink(sink, lambda page: self._showing.without_denied(session, page))
            )
        taken = self._taking()
        walk = PagedListRequest(
            asked.message,
            sink,
            ask=asked.forward,
            new_id=self._showing.new_id,
            whole=lambda walk: self._showing.listed(session, walk, taken),
        )
        walk.start()
        return walk

    def _passed(self, session: Session, page: Message) -> Message:
        """A list passes untouched; it is remembered what the client has."""
        if self._showing.passed(session, page):
            self.listeners.changed(session)
        return page

    def _filter_call(self, asked: "_Asked", sink: ClientResponseSink) -> InFlightRequest:
        message = asked.message
        given = request_params.read(message)
        name = tool_name(given)
        session = asked.session = self._session_of(asked)
        if name and self._showing.meta_tools.owns(session, name):
            call = MetaToolCall(message, sink)

            async def ready() -> None:
                await self._know(asked, session)

            self._meta_calls.start(
                call,
                session,
                name,
                given,
                ready=ready,
                forward=asked.forward_anew,
                changed=lambda _: self.listeners.changed(session),
            )
            return call
        return asked.forward(message, sink)

    def _filter_listen(self, asked: "_Asked", sink: ClientResponseSink) -> InFlightRequest:
        if not self._announces(asked):
            return asked.forward(asked.message, ListChangedSink(sink, self._forget))
        listener = self.listeners.add(self._session_of(asked), asked.message, sink)
        listener.in_flight = asked.forward(asked.message, ListChangedSink(listener, self._forget))
        return listener.in_flight

    async def _know(self, asked: "_Asked", session: Session) -> None:
        """Load the catalog that a meta-tool needs."""
        if time.monotonic() > self._known_until:
            await self._learn(asked)
        if self._catalog is not None:
            self._showing.filtering.know(session, self._catalog)

    async def _learn(self, asked: "_Asked") -> None:
        """Ask for the whole list, in the client's envelope; what cannot be had in time is not waited for."""
        meta = jsonrpc.members(asked.envelope.meta)
        meta.pop("progressToken", None)
        params = b'{"_meta":%b}' % jsonrpc.join_object(meta)
        await self._showing.fetch(
            jsonrpc.request(self._showing.new_id(), "tools/list", params),
            ask=asked.forward_anew,
            take=self._taking(),
            withdraw=self.cancel,
        )

    def _taking(self) -> Callable[[ToolCatalog], None]:
        """Takes a list that is asked for now; what changes until it is there lets it count once and no longer."""
        changes = self._changes

        def take(catalog: ToolCatalog) -> None:
            self._catalog = catalog
            self._known_until = time.monotonic() + KNOWN_SECONDS if changes == self._changes else 0.0

        return take

    def _forget(self) -> None:
        """An upstream said that its tools changed."""
        self._changes += 1
        self._known_until = 0.0

    def _described(self, asked: "_Asked", answer: Message) -> Message:
        """Return the upstream's capabilities with those that riglm adds."""
        if self._showing.adds:
            answer = offering(answer)
        return announcing(answer) if self._announces(asked) else answer

    def _announces(self, asked: "_Asked") -> bool:
        """Whether lists change for this client, found out without opening a session for it."""
        client, transport = asked.envelope.client, asked.caller.transport
        return self._showing.announces(
            Session(
                started_at=0.0,
                era=ProtocolEra.MODERN,
                transport=transport,
                method=IdentificationMethod.ADDRESS,
                client=client,
            )
        )

    def _session_of(self, asked: "_Asked", *, starts: bool = False) -> Session:
        envelope = asked.envelope
        sessions = self._services.sessions
        return sessions.of_request(asked.caller, envelope.client, envelope.version or "", envelope.meta, starts=starts)


def _answered(message: Message, sink: ClientResponseSink, answer: Message, status: int = 200) -> InFlightRequest:
    exchange = ProxiedRequest(message, sink)
    exchange.replied(answer, status)
    return exchange


class _Asked:
    """A request, and how further ones are sent in its name."""

    __slots__ = ("_headers", "_requests", "caller", "envelope", "message", "session")

    def __init__(
        self,
        requests: FilteringModernHandler,
        message: Message,
        envelope: RequestEnvelope,
        caller: Caller,
        headers: Mapping[bytes, bytes],
    ) -> None:
        self.message = message
        self.envelope = envelope
        self.caller = caller
        self.session: Session | None = None
        self._requests = requests
        self._headers = headers

    def forward(self, message: Message, sink: ClientResponseSink) -> InFlightRequest:
        """Send the request itself, or another page of it, with the client's headers."""
        return self._requests.accept(message, self.envelope, sink, self._headers, self.session)

    def forward_anew(self, message: Message, sink: ClientResponseSink) -> InFlightRequest:
        """Send another request, whose headers are made from what it says."""
        return self._requests.accept(message, self.envelope, sink, session=self.session)
