"""A client connection of the handshake era that is shown what the filter chooses."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial

from riglm.application.filter_middleware.client_roots import ClientRoots
from riglm.application.filter_middleware.list_changes import (
    ListChangeNotifier,
    ObservedChannel,
    announcing,
    has_announced,
    offering,
)
from riglm.application.filter_middleware.meta_tool_calls import MetaToolCall, MetaToolCalls
from riglm.application.filter_middleware.middleware import FilterMiddleware
from riglm.application.filter_middleware.paged_lists import PagedListRequest
from riglm.application.filter_middleware.response_sinks import (
    ErrorTransformingSink,
    NonResumableSink,
    TransformingSink,
    TransformingStream,
)
from riglm.application.forwarding.proxied_request import NOWHERE, ProxiedRequest
from riglm.application.forwarding.services import RequestServices, tool_name
from riglm.application.forwarding.tracing import RequestTracer
from riglm.domain import jsonrpc, request_params
from riglm.domain.access import is_loopback
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.session import ClientInfo, Session, Transport
from riglm.domain.tool import ToolCatalog
from riglm.ports.downstream import (
    NO_HEADERS,
    Caller,
    ClientChannel,
    ClientResponseSink,
    ConnectionHandoff,
    HandshakeConnection,
    InFlightRequest,
)
from riglm.ports.upstream import ResumedStreamHandler


class FilteringConnection(HandshakeConnection):
    """One client connection of the handshake era, with the tool filter if there is one.

    Subclasses forward what the filter accepts to one or several upstream servers.
    """

    __slots__ = (
        "_caller",
        "_catalog",
        "_changes",
        "_channel",
        "_client",
        "_filters",
        "_hears",
        "_latest",
        "_meta_calls",
        "_news",
        "_own",
        "_roots",
        "_services",
        "_session",
        "_showing",
        "_tracer",
    )

    _showing: FilterMiddleware
    _news: ListChangeNotifier

    def __init__(
        self, services: RequestServices, caller: Caller, channel: ClientChannel, showing: FilterMiddleware | None
    ) -> None:
        """Without `showing`, tools are not filtered."""
        self._caller = caller
        self._client = ClientInfo()
        self._session: Session | None = None
        self._filters = showing is not None
        self._services = services if showing is None else showing.observed()
        self._channel = channel if showing is None else ObservedChannel(channel, self._forget)
        self._meta_calls: MetaToolCalls | None = None
        self._own: dict[bytes, PagedListRequest | MetaToolCall] = {}
        self._changes = 0  # how often the upstream's tools changed
        self._catalog: ToolCatalog | None = None
        self._latest: Session | None = None  # whose list is shown: calls may name a conversation, lists hardly do
        self._hears = False
        self._roots: ClientRoots | None = None
        self._tracer = None if services.tracer is None else RequestTracer(services.tracer)
        if showing is not None:
            self._showing = showing
            self._news = ListChangeNotifier(channel)
            showing.follow(self._follow)

    @abstractmethod
    def accept(
        self,
        message: Message,
        sink: ClientResponseSink,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
        *,
        resumable: bool = False,
        session: Session | None = None,
    ) -> ProxiedRequest | None:
        """Process a message that the filter accepted; `session` is known for calls and lists of tools."""

    @abstractmethod
    def name_patterns(self, tool: str) -> tuple[str, ...]:
        """Return all names under which the client may know the tool that `tool` reaches."""

    @abstractmethod
    def listen_upstream(self, *, listening: bool) -> None:
        """Start or stop receiving server messages."""

    @abstractmethod
    def resume_upstream(self, last_event_id: bytes, stream: ResumedStreamHandler) -> None:
        """Request the rest of a stream from the upstream server."""

    @abstractmethod
    def adopt_upstream(self, handoff: ConnectionHandoff) -> bool:
        """Continue the upstream links of another process; False if servers must be sent all of it again."""

    @abstractmethod
    def release_upstream(self) -> None:
        """Release the upstream links to other processes."""

    @abstractmethod
    async def close_upstream(self) -> None:
        """Cancel the requests in flight and close the upstream links."""

    @property
    def session(self) -> Session:
        if self._session is None:
            self._session = self._services.sessions.of_connection(self._caller, self._client, "")
        return self._session

    def received(
        self,
        message: Message,
        sink: ClientResponseSink,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
        *,
        resumable: bool = False,
    ) -> InFlightRequest | None:
        if self._tracer is None:
            return self._receive(message, sink, headers, resumable=resumable)
        if not message.is_request:
            self._receive(message, sink, headers, resumable=resumable)
            self._tracer.end_cancelled()
            return None
        traced = self._tracer.start(message, sink, self._caller.transport)
        with traced.active():
            traced.in_flight = self._receive(message, traced, headers, resumable=resumable)
        return traced.in_flight

    def _receive(
        self, message: Message, sink: ClientResponseSink, headers: Mapping[bytes, bytes], *, resumable: bool
    ) -> InFlightRequest | None:
        refused = self._services.misreading(message) or (self._id_error(message) if self._filters else None)
        if refused is not None:
            if message.is_request:
                sink.replied(refused, 400)
            return None
        if message.id is None or message.method is None:
            if not self._take_own(message):
                self.accept(message, sink)
            return None
        if message.method == "initialize":
            self._heed_roots(message)
        if not self._filters:
            return self.accept(message, sink, headers, resumable=resumable)
        if message.method == "tools/list":
            if self._showing.adds:
                sink = ErrorTransformingSink(sink, self._showing.completed)
            return self._filter_list(message, sink, headers, resumable=resumable)
        if message.method == "tools/call":
            return self._filter_call(message, sink, headers, resumable=resumable)
        if message.method == "initialize":
            sink = TransformingSink(sink, self._greeting)
        return self.accept(message, sink, headers, resumable=resumable)

    def _take_own(self, message: Message) -> bool:
        """Take a notification or answer; True if it concerns what riglm itself does."""
        if self._roots is not None and self._roots.received(message):
            return True
        return bool(self._own) and message.method == "notifications/cancelled" and self._cancel_own(message)

    def _heed_roots(self, handshake: Message, *, is_initialized: bool = False) -> None:
        """Ask for the roots of a client that has any and works elsewhere than in riglm's working directory."""
        is_remote = self._caller.transport in {Transport.HTTP, Transport.SSE}
        if is_remote and "roots" in jsonrpc.members(jsonrpc.members(handshake.params).get("capabilities", b"{}")):
            self._roots = ClientRoots(
                self._channel,
                self._services.sessions,
                lambda: self.session,
                is_here=is_loopback(self._caller.address),
                is_initialized=is_initialized,
            )

    def _id_error(self, message: Message) -> Message | None:
        if self._own and message.is_request and jsonrpc.id_key(message.id or b"") in self._own:
            return jsonrpc.error(message.id, jsonrpc.INVALID_REQUEST, "Invalid request: the id is in use")
        return None

    def listen(self, *, listening: bool) -> None:
        if listening and self._filters:
            self._news.listening()
        if self._roots is not None:
            self._roots.listen(listening=listening)
        self.listen_upstream(listening=listening)

    def resume(self, last_event_id: bytes, stream: ResumedStreamHandler) -> None:
        if self._filters:  # a client that guesses an event id of a list must not get more than its list
            session = self.session
            stream = TransformingStream(stream, lambda answer: self._showing.without_denied(session, answer))
        self.resume_upstream(last_event_id, stream)

    def adopt(self, handoff: ConnectionHandoff) -> bool:
        self._client, _ = request_params.client_of(handoff.handshake)
        if self._session is None:
            self._session = handoff.session
            self._services.sessions.hold(handoff.session)
            self._heed_roots(handoff.handshake, is_initialized=True)
        return self.adopt_upstream(handoff)

    def on_remote_activity(self) -> None:
        if self._filters:
            self._news.listed()

    def detach(self) -> None:
        if self._session is not None:
            self._services.sessions.left(self._session)
            self._session = None
        self.release_upstream()

    async def close(self) -> None:
        if self._filters:
            self._showing.unfollow(self._follow)
        if self._meta_calls is not None:
            await self._meta_calls.close()
        for one in list(self._own.values()):
            if isinstance(one, PagedListRequest):
                one.give_up()
            else:
                one.cancelled()
        try:
            await self.close_upstream()
        finally:
            if self._tracer is not None:
                self._tracer.end_all()

    def _filter_list(
        self, message: Message, sink: ClientResponseSink, headers: Mapping[bytes, bytes], *, resumable: bool
    ) -> InFlightRequest | None:
        if not self._showing.filtering.is_on:
            return self._pass_list(message, sink, headers, resumable=resumable)
        session = self._session_of(self._shown_to, request_params.read(message).meta)
        if jsonrpc.members(message.params).get("cursor") is not None:
            return self.accept(
                message,
                NonResumableSink(sink, lambda page: self._showing.without_denied(session, page)),
                session=session,
            )
        changes = self._changes
        walk = self._walk(
            message,
            sink,
            lambda walk: self._showing.listed(session, walk, lambda catalog: self._list_sent(catalog, changes)),
        )
        self._own[jsonrpc.id_key(message.id or b"null")] = walk
        walk.start()
        return walk

    def _pass_list(
        self, message: Message, sink: ClientResponseSink, headers: Mapping[bytes, bytes], *, resumable: bool
    ) -> InFlightRequest | None:
        """Let a list pass untouched; of the first page it is remembered what the client has."""
        if jsonrpc.members(message.params).get("cursor") is None:
            session = self._session_of(self._shown_to, request_params.read(message).meta)
            sink = TransformingSink(sink, lambda page: self._passed(session, page))
        return self.accept(message, sink, headers, resumable=resumable)

    def _passed(self, session: Session, page: Message) -> Message:
        self._news.listed()
        if self._showing.passed(session, page) and self._hears:
            asyncio.get_running_loop().call_soon(self._news.changed)  # after the list
        return page

    @property
    def _shown_to(self) -> Session:
        return self._latest if self._latest is not None and self._latest.ended_at is None else self.session

    def _follow(self, is_another: Callable[[Session], bool]) -> None:
        """Notify the client if its list has changed."""
        if self._hears and is_another(self._shown_to):
            self._news.changed()

    def _session_of(self, base: Session, meta: Raw) -> Session:
        """Return the session that a request names in its `_meta`, else `base`."""
        return self._services.sessions.of_call(base, self._caller, meta) if meta else base

    def _walk(
        self, message: Message, sink: ClientResponseSink, whole: Callable[[PagedListRequest], None]
    ) -> PagedListRequest:
        return PagedListRequest(
            message,
            sink,
            ask=self.accept,
            new_id=self._showing.new_id,
            whole=whole,
            over=lambda walk: self._own_ended(walk.asked),
        )

    def _list_sent(self, catalog: ToolCatalog, changes: int) -> None:
        """Record that the client has a list as of `changes`; a list interrupted by a change does not count."""
        self._catalog = catalog if changes == self._changes else None
        self._news.listed()

    def _filter_call(
        self, message: Message, sink: ClientResponseSink, headers: Mapping[bytes, bytes], *, resumable: bool
    ) -> InFlightRequest | None:
        given = request_params.read(message)
        name = tool_name(given)
        session = self._latest = self._session_of(self.session, given.meta)
        if name and self._showing.meta_tools.owns(session, name):
            return self._call_own(message, sink, session, given)
        return self.accept(message, sink, headers, resumable=resumable, session=session)

    def _call_own(
        self, message: Message, sink: ClientResponseSink, session: Session, given: request_params.RequestParams
    ) -> InFlightRequest:
        call = MetaToolCall(message, sink, on_done=self._meta_call_ended)
        self._own[jsonrpc.id_key(message.id or b"null")] = call

        async def ready() -> None:
            await self._know(session, sink)

        if self._meta_calls is None:
            self._meta_calls = MetaToolCalls(self._showing)
        self._meta_calls.start(
            call,
            session,
            jsonrpc.text(given.name) or "",
            given,
            ready=ready,
            forward=partial(self.accept, session=session),
            changed=self._news.changed,
        )
        return call

    async def _know(self, session: Session, sink: ClientResponseSink) -> None:
        """Load the catalog that a meta-tool needs."""
        catalog = self._catalog or await self._learned(sink)
        if catalog is not None:
            self._showing.filtering.know(session, catalog)

    async def _learned(self, sink: ClientResponseSink) -> ToolCatalog | None:
        """Fetch the catalog for riglm itself; None if it does not arrive in time."""
        changes = self._changes
        found: list[ToolCatalog] = []
        await self._showing.fetch(
            jsonrpc.request(self._showing.new_id(), "tools/list"),
            ask=self.accept,
            take=found.append,
            withdraw=self._withdraw,
            sink=sink,
        )
        if found and changes == self._changes:
            self._catalog = found[0]
        return found[0] if found else None

    def _forget(self) -> None:
        """The upstream's tools changed."""
        self._changes += 1
        self._catalog = None

    def _greeting(self, answer: Message) -> Message:
        if self._showing.adds:
            answer = offering(answer)
        if self._showing.announces(self.session):
            answer = announcing(answer)
        self._hears = has_announced(answer)
        return answer

    def _cancel_own(self, notice: Message) -> bool:
        """Give up what riglm does for a request; whether it did anything for it."""
        one = self._own.get(request_params.cancelled_id(notice) or b"")
        if isinstance(one, PagedListRequest):
            self._withdraw(one, notice)
        elif one is not None and one.forwarded is None and self._meta_calls is not None:
            self._meta_calls.cancel(one)
        elif one is not None:
            self.accept(notice, NOWHERE)
            one.cancelled()
        return one is not None

    def _withdraw(self, walk: PagedListRequest, notice: Message | None = None) -> None:
        """Give up a list, under the id that its request has upstream."""
        if notice is None or walk.current is not walk.asked:
            params = b'{"requestId":%b,"reason":"the client no longer waits"}' % (walk.current.id or b"null")
            notice = jsonrpc.notification("notifications/cancelled", params)
        self.accept(notice, NOWHERE)
        walk.give_up()

    def _meta_call_ended(self, call: ProxiedRequest) -> None:
        self._own_ended(call.message)

    def _own_ended(self, asked: Message) -> None:
        self._own.pop(jsonrpc.id_key(asked.id or b"null"), None)
