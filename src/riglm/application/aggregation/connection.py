"""A client connection of the handshake era in front of several upstreams."""

import asyncio
from collections.abc import Mapping, Sequence

from riglm.application.aggregation.merged_lists import MergedListCache, OwnershipTable
from riglm.application.aggregation.router import ClientToolNames, Route, Router
from riglm.application.aggregation.upstream_group import ServerRequestMap, UpstreamGroup
from riglm.application.aggregation.upstream_session import UpstreamSession
from riglm.application.filter_middleware.handshake_connection import FilteringConnection
from riglm.application.filter_middleware.middleware import FilterMiddleware
from riglm.application.forwarding.notifier import ANNOUNCEMENT, CHANGED, DebouncedNotifier, HeldMessages
from riglm.application.forwarding.proxied_request import ProxiedRequest
from riglm.application.forwarding.riglm_requests import Asking, Workers
from riglm.application.forwarding.services import RequestServices
from riglm.application.owners import server_info
from riglm.domain import jsonrpc, protocol, request_params
from riglm.domain.client_support import list_timeout_of, longest_wait_of, support_of
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.session import Session
from riglm.ports.downstream import NO_HEADERS, Caller, ClientChannel, ClientResponseSink, ConnectionHandoff
from riglm.ports.upstream import EventPosition, ResumedStreamHandler, UpstreamLink, UpstreamPort


class MultiServerConnection(FilteringConnection):
    """Shows one client many servers as one."""

    def __init__(
        self,
        services: RequestServices,
        upstreams: Sequence[UpstreamPort],
        merged_lists: MergedListCache,
        caller: Caller,
        channel: ClientChannel,
        showing: FilterMiddleware | None = None,
    ) -> None:
        """A conversation that opens its links with the client's handshake."""
        super().__init__(services, caller, channel, showing)
        services = self._services
        self._held = HeldMessages(self._channel)
        self._directory = OwnershipTable([upstream.spec.name for upstream in upstreams], merged_lists)
        asking = Asking(self)
        self._announcer = DebouncedNotifier(self._notify)
        self._upstreams = UpstreamGroup(
            upstreams,
            self,
            asking,
            self._directory,
            services.known_catalogs,
            principal=caller.principal,
            grace=services.grace,
            on_change=lambda method: self._announcer.announce(ANNOUNCEMENT[method]),
        )
        self._server_requests = ServerRequestMap()
        self._shown = ClientToolNames(services, merged_lists)
        self._router = Router(self._directory, asking)
        self._workers = Workers()
        self._open: dict[bytes, ProxiedRequest] = {}
        self._links: dict[ProxiedRequest, UpstreamLink] = {}
        self._may_log = False

    def name_patterns(self, tool: str) -> tuple[str, ...]:
        return self._directory.name_patterns(tool)

    def accept(
        self,
        message: Message,
        sink: ClientResponseSink,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
        *,
        resumable: bool = False,
        session: Session | None = None,
    ) -> ProxiedRequest | None:
        if message.id is None or message.method is None:
            self._told(message)
            return None
        key = jsonrpc.id_key(message.id)
        if key in self._open:
            sink.replied(jsonrpc.error(message.id, jsonrpc.INVALID_REQUEST, "Invalid request: the id is in use"), 400)
            return None
        exchange = ProxiedRequest(message, sink, session=session, on_done=self._finished)
        self._open[key] = exchange
        method = message.method
        if method == "initialize":
            self._workers.start(exchange, self._initialize, exchange)
        elif method == "ping":
            exchange.replied(jsonrpc.result(message.id, b"{}"))
        elif method == "logging/setLevel":
            self._workers.start(exchange, self._set_log_level, exchange)
        elif method in protocol.LIST_MEMBER:
            self._workers.start(exchange, self._list, exchange)
        else:
            self._route(exchange)
        return exchange

    def listen_upstream(self, *, listening: bool) -> None:
        if listening:
            self._held.flush()
        self._upstreams.listen(listening=listening)

    def resume_upstream(self, last_event_id: bytes, stream: ResumedStreamHandler) -> None:
        stream.ended()  # one event id cannot name a place in the streams of several servers

    def unsolicited(self, link: UpstreamLink, message: Message, event: EventPosition | None = None) -> None:
        """Forward a server message; list changes are announced once for all servers."""
        methods = CHANGED.get(message.method or "")
        if methods is not None:
            self._upstreams.forget(link.spec.name, methods)
            self._announcer.announce(message.method or "")
            return
        outward = self._server_requests.outward(link, message)
        if outward is None or self._held.push(outward):
            return
        sent = [exchange for exchange, owner in self._links.items() if owner is link]
        if outward.is_request and (carriers := sent or list(self._open.values())):
            carriers[-1].sink.related(outward)
        else:
            self._held.keep(outward)

    @property
    def tickets(self) -> Mapping[str, bytes]:
        return self._upstreams.tickets()

    def adopt_upstream(self, handoff: ConnectionHandoff) -> bool:
        self._set_timeouts()
        return self._upstreams.adopt(handoff)

    def heard(self, notice: Message) -> None:
        methods = CHANGED.get(notice.method or "")
        if methods is not None:
            for server in self._upstreams.members:
                self._upstreams.forget(server, methods)
            self._held.push(notice)

    def release_upstream(self) -> None:
        for member in self._upstreams.members.values():
            member.link.detach()

    async def close_upstream(self) -> None:
        self._announcer.close()
        await self._workers.close()
        for exchange in list(self._open.values()):
            exchange.cancelled()
        if self._session is not None:
            self._services.sessions.closed(self._session)
        await self._upstreams.close()

    def _notify(self, message: Message) -> None:
        if not self._held.push(message):
            self._held.keep(message)

    def _told(self, message: Message) -> None:
        if message.is_response:
            self._pass_on(self._server_requests.homeward(message))
        elif message.method == "notifications/cancelled":
            self._cancel(message)
        elif message.method == "notifications/progress":
            self._pass_on(self._server_requests.progressed(message))
        elif message.method != "notifications/initialized":
            self._upstreams.notify(message)

    def _pass_on(self, found: tuple[UpstreamLink, Message] | None) -> None:
        if found is not None:
            link, message = found
            link.send(message)

    def _cancel(self, notice: Message) -> None:
        key = jsonrpc.find_id(self._open, request_params.cancelled_id(notice) or b"")
        exchange = self._open[key] if key is not None else None
        if exchange is not None:
            link = self._links.get(exchange)
            if link is not None:
                link.cancel(exchange, notice)
            self._workers.cancel(exchange)
            exchange.cancelled()

    async def _initialize(self, exchange: ProxiedRequest) -> None:
        self._client, asked = request_params.client_of(exchange.message)
        self._set_timeouts()
        await self._upstreams.open(bytes(exchange.message.params) or b"{}")
        version = asked if asked in protocol.HANDSHAKE_VERSIONS else protocol.HANDSHAKE_VERSIONS[-1]
        self.session.protocol_version = version
        self._services.tracking.session_changed(self.session)
        capabilities = self._upstreams.capabilities()
        self._may_log = "logging" in capabilities
        answer = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": server_info()}
        instructions = self._upstreams.instructions()
        if instructions:
            answer["instructions"] = instructions
        exchange.replied(jsonrpc.result(exchange.message.id or b"null", jsonrpc.encode(answer)))

    def _set_timeouts(self) -> None:
        """Let lists wait for as long as this client does."""
        known, services = support_of(self._client.name), self._services
        self._upstreams.list_timeout = list_timeout_of(known, services.grace, services.longest_list)
        self._upstreams.longest_wait = longest_wait_of(known, services.longest_list)

    async def _list(self, exchange: ProxiedRequest) -> None:
        method = exchange.message.method or ""
        joined = await self._upstreams.joined(method)
        if joined is None:
            exchange.failed(ErrorKind.UNAVAILABLE, f"no upstream has a list: {self._upstreams.failures()}")
            return
        fields = {protocol.LIST_MEMBER[method]: Raw(joined.raw)}
        if method == "tools/list":
            for words in self._upstreams.new_absences() if self._may_log else ():
                data = {"level": "warning", "logger": "riglm", "data": words}
                exchange.related(jsonrpc.notification("notifications/message", jsonrpc.encode(data)))
            fields |= self._shown.show(exchange.session or self.session, joined, self._upstreams.missing())
        exchange.replied(jsonrpc.result(exchange.message.id or b"null", jsonrpc.join_object(fields)))

    async def _set_log_level(self, exchange: ProxiedRequest) -> None:
        message_id = exchange.message.id or b"null"
        error = await self._upstreams.set_log_level(bytes(exchange.message.params))
        exchange.replied(error.replace(id=message_id) if error is not None else jsonrpc.result(message_id, b"{}"))

    def _route(self, exchange: ProxiedRequest) -> None:
        """Send a request to the server that it belongs to, at once if that is known."""
        route = self._router.find(exchange.message)
        is_call = exchange.message.method == "tools/call"
        pins, members = self._services.pins, self._upstreams.members
        if route is None or (is_call and pins.needs_comparison(members[route.server].link)):
            self._workers.start(exchange, self._search, exchange)
        elif (refused := self._refusal(exchange, route)) is None:
            self._forward(exchange, route)
        else:
            exchange.replied(refused)

    async def _search(self, exchange: ProxiedRequest) -> None:
        """Look for the server in fresh lists; what stays unknown is refused, or offered to all."""
        message = exchange.message
        await self._upstreams.refresh(self._router.lists_for(message))
        self._services.waited()
        route = self._router.find(message)
        if route is not None and message.method == "tools/call":
            member = self._upstreams.members[route.server]
            if self._services.pins.needs_comparison(member.link):
                await asyncio.shield(member.fetch("tools/list"))
        answer = self._refusal(exchange, route)
        if route is not None and answer is None:
            await self._forward_once_open(exchange, self._upstreams.members[route.server], route)
            return
        if answer is None:
            links = [member.link for member in self._upstreams.members.values() if member.is_open]
            answer = await self._router.offer(message, links, lambda link, inner: self._related(exchange, link, inner))
        exchange.replied(answer)

    def _related(self, exchange: ProxiedRequest, link: UpstreamLink, inner: Message) -> None:
        outward = self._server_requests.outward(link, inner)
        if outward is not None:
            exchange.related(outward)

    def _refusal(self, exchange: ProxiedRequest, route: Route | None) -> Message | None:
        """Return an error for a request that is denied or has no server; calls are recorded."""
        message = exchange.message
        if message.method != "tools/call":
            return self._router.unknown(message) if route is None else None
        session = exchange.session or self._session_of(self.session, request_params.read(message).meta)
        link = self._upstreams.members[route.server].link if route is not None else None
        exchange.call, refused = self._shown.start_call(session, self._router, message, route, link)
        return refused

    def _forward(self, exchange: ProxiedRequest, route: Route) -> None:
        member = self._upstreams.members[route.server]
        if member.is_open:
            self._send(exchange, member, route)
        else:
            self._workers.start(exchange, self._forward_once_open, exchange, member, route)

    async def _forward_once_open(self, exchange: ProxiedRequest, member: UpstreamSession, route: Route) -> None:
        was_open = member.is_open
        if await member.ready():
            if not was_open:
                exchange.resumed()
            self._send(exchange, member, route)
        else:
            words = f"upstream {member.name!r} is not available: {member.reason}"
            exchange.failed(ErrorKind.UNAVAILABLE, words)

    def _send(self, exchange: ProxiedRequest, member: UpstreamSession, route: Route) -> None:
        link = member.link

        def answered(exchange: ProxiedRequest, reply: Message) -> Message:
            if exchange.failure is ErrorKind.UNAVAILABLE:
                member.forget_all()
            return self._router.note(route.server, reply)

        self._links[exchange] = link
        exchange.on_server_message = lambda inner: self._server_requests.outward(link, inner)
        exchange.on_reply = answered
        exchange.message = route.message
        exchange.send(link)

    def _finished(self, exchange: ProxiedRequest) -> None:
        self._links.pop(exchange, None)
        del self._open[jsonrpc.id_key(exchange.message.id or b"null")]
