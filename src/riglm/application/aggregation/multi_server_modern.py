"""Requests of the modern era in front of several upstreams."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from riglm.application.aggregation.merged_lists import MergedListCache, OwnershipTable, merged
from riglm.application.aggregation.merged_subscription import EraNegotiation, MergedSubscription
from riglm.application.aggregation.router import ClientToolNames, Route, Router
from riglm.application.aggregation.upstream_lists import UpstreamListCache
from riglm.application.connections.single_server_modern import refusal
from riglm.application.filter_middleware.filtering_modern import FilteringModernHandler
from riglm.application.filter_middleware.middleware import FilterMiddleware
from riglm.application.forwarding.notifier import ANNOUNCEMENT
from riglm.application.forwarding.proxied_request import ProxiedRequest
from riglm.application.forwarding.riglm_requests import Asking, Workers
from riglm.application.forwarding.services import RequestServices
from riglm.application.owners import server_info
from riglm.domain import jsonrpc, protocol
from riglm.domain.client_support import list_timeout_of, longest_wait_of, support_of
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.request_params import RequestEnvelope
from riglm.domain.session import ProtocolEra, Session
from riglm.ports.downstream import NO_HEADERS, ClientResponseSink
from riglm.ports.upstream import NullServerMessageHandler, UpstreamLink, UpstreamPort

_COMPLETE: Final = {"resultType": Raw(b'"complete"'), "ttlMs": Raw(b"0"), "cacheScope": Raw(b'"private"')}
_LISTS: Final = ("tools", "prompts", "resources")


class MultiServerModernHandler(FilteringModernHandler, NullServerMessageHandler):
    """Shows clients many servers as one; serves the modern era only while no server is known to lack it."""

    def __init__(
        self,
        services: RequestServices,
        upstreams: Sequence[UpstreamPort],
        merged_lists: MergedListCache,
        showing: FilterMiddleware | None = None,
        access: str = "",
    ) -> None:
        """Nothing is requested before a client requests it."""
        super().__init__(services, showing, access)
        services = self._services
        self._upstreams = {upstream.spec.name: upstream for upstream in upstreams}
        self._links: dict[str, UpstreamLink] = {name: up.stateless(self) for name, up in self._upstreams.items()}
        self._era_negotiation = EraNegotiation(self._upstreams, self._links, services.grace, services.known_catalogs)
        self._directory = OwnershipTable(self._upstreams, merged_lists)
        self._asking = Asking()
        self._lists = UpstreamListCache(
            self._era_negotiation.links,
            self._asking,
            self._directory,
            services.known_catalogs,
            [upstream.spec for upstream in upstreams],
            self._announce,
        )
        self._listens: set[MergedSubscription] = set()
        self._router = Router(self._directory, self._asking)
        self._shown = ClientToolNames(services, merged_lists)
        self._workers = Workers()
        self._greeting: set[asyncio.Task[None]] = set()
        self._owners: dict[ProxiedRequest, UpstreamLink] = {}

    def name_patterns(self, tool: str) -> tuple[str, ...]:
        return self._directory.name_patterns(tool)

    def accept(
        self,
        message: Message,
        envelope: RequestEnvelope,
        sink: ClientResponseSink,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
        session: Session | None = None,
    ) -> ProxiedRequest:
        exchange = ProxiedRequest(message, sink, session=session, on_done=self._finished)
        self._workers.start(exchange, self._answer, exchange, envelope)
        return exchange

    def notify_upstream(self, message: Message) -> None:
        if message.method != "notifications/cancelled":  # it would name a request of another client there
            for link in self._links.values():
                link.send(message)

    def cancel_upstream(self, exchange: ProxiedRequest, notice: Message | None) -> None:
        link = self._owners.get(exchange)
        if link is not None:
            link.cancel(exchange, notice)
        self._workers.cancel(exchange)

    async def close_upstream(self) -> None:
        await self._workers.close()
        await self._lists.close()
        tasks = list(self._greeting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def listed_schema(self, tool: str) -> bytes | None:
        return self._shown.input_schema(tool)

    async def _answer(self, exchange: ProxiedRequest, envelope: RequestEnvelope) -> None:
        message = exchange.message
        discovering = message.method == "server/discover"
        is_known = self._era_negotiation.is_granted
        if not await self._era_negotiation.reached(asked_for=discovering):
            exchange.replied(refusal(message, envelope.version), 400)
        elif discovering:
            await self._discover(exchange)
        elif message.method in protocol.LIST_MEMBER:
            await self._list(exchange, envelope)
        elif message.method == "subscriptions/listen":
            await self._listen(exchange)
        else:
            if not is_known:
                self._services.waited()
            await self._route(exchange)

    async def _discover(self, exchange: ProxiedRequest) -> None:
        capabilities: dict[str, Any] = {}
        instructions = []
        greetings = await self._greetings(exchange.message)
        if len(greetings) < len(self._era_negotiation.links()):
            capabilities = {name: {"listChanged": True} for name in _LISTS}  # of who answers later
        for name, (raw, words) in greetings.items():
            capabilities = merged(capabilities, jsonrpc.plain(Raw(raw)))
            if words:
                instructions.append(f"# {name}\n{words}")
        if "tools" in capabilities:  # a server may come or go
            capabilities["tools"] = merged(capabilities["tools"], {"listChanged": True})
        result = {
            "resultType": "complete",
            "supportedVersions": list(protocol.MODERN_VERSIONS),
            "capabilities": capabilities,
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {protocol.META_SERVER: server_info()},
        }
        if instructions:
            result["instructions"] = "\n\n".join(instructions)
        exchange.replied(jsonrpc.result(exchange.message.id or b"null", jsonrpc.encode(result)))

    async def _list(self, exchange: ProxiedRequest, envelope: RequestEnvelope) -> None:
        method = exchange.message.method or ""
        known, services = support_of(envelope.client.name), self._services
        timeout = list_timeout_of(known, services.grace, services.longest_list)
        longest = longest_wait_of(known, services.longest_list)
        joined = await self._lists.joined(method, exchange.message, timeout, longest)
        if joined is None:
            names = ", ".join(map(repr, self._era_negotiation.links()))
            exchange.failed(ErrorKind.UNAVAILABLE, f"no upstream has a list: {names} did not answer")
            return
        fields = {protocol.LIST_MEMBER[method]: Raw(joined.raw), **_COMPLETE}
        if exchange.session is not None and method == "tools/list":
            fields |= self._shown.show(exchange.session, joined, self._lists.missing())
        exchange.replied(jsonrpc.result(exchange.message.id or b"null", jsonrpc.join_object(fields)))

    async def _route(self, exchange: ProxiedRequest) -> None:
        """Send a request to the server that it belongs to; what stays unknown is refused, or offered to all."""
        message = exchange.message
        route = self._router.find(message)
        if route is None:
            await self._lists.refresh(self._router.lists_for(message), message, self._services.grace)
            self._services.waited()
            route = self._router.find(message)
        elif message.method == "tools/call" and (timeout := self._list_timeout(route.server)) is not None:
            await self._lists.refresh(("tools/list",), message, timeout, (route.server,))
            self._services.waited()
            route = self._router.find(message) or route
        if exchange.session is not None and message.method == "tools/call":
            link = self._era_negotiation.links().get(route.server) if route is not None else None
            exchange.call, refused = self._shown.start_call(exchange.session, self._router, message, route, link)
        else:
            refused = self._router.unknown(message) if route is None else None
        if refused is not None:
            exchange.replied(refused)
        elif route is not None:
            self._forward(exchange, route)
        else:
            links = self._era_negotiation.links().values()
            exchange.replied(await self._router.offer(message, links, lambda _, __: None))

    def _list_timeout(self, server: str) -> float | None:
        """Seconds for which a call waits until the server has listed its tools; None if it need not."""
        link = self._era_negotiation.links().get(server)
        if link is not None and self._services.pins.needs_comparison(link):
            return self._services.longest_list
        return None if self._directory.knows("tools/list", server) else self._services.grace

    def _forward(self, exchange: ProxiedRequest, route: Route) -> None:
        link = self._era_negotiation.links().get(route.server)
        if link is None:
            exchange.failed(ErrorKind.UNAVAILABLE, f"upstream {route.server!r} supports only the handshake era")
            return
        self._owners[exchange] = link
        exchange.on_reply = lambda _, reply: self._router.note(route.server, reply)
        exchange.message = route.message
        exchange.send(link)

    async def _listen(self, exchange: ProxiedRequest) -> None:
        links = self._era_negotiation.links()
        if not links:
            exchange.failed(ErrorKind.UNAVAILABLE, "no upstream supports the modern era any more")
            return
        listen = MergedSubscription(
            exchange,
            links,
            self._asking,
            params=partial(self._wanted_of, exchange.message),
            on_change=self._lists.forget,
        )
        self._listens.add(listen)
        try:
            await listen.run(self._services.grace)
        finally:
            self._listens.discard(listen)

    def _announce(self, method: str) -> None:
        """A list came after clients had got an answer without it."""
        for listen in self._listens:
            listen.announce(ANNOUNCEMENT[method])

    def _wanted_of(self, asked: Message, server: str) -> bytes:
        """The params of a listen, without the resources that are known to be another server's."""
        path = ("notifications", "resourceSubscriptions")
        params = jsonrpc.members(asked.params)
        uris = jsonrpc.members(params.get(path[0], b"{}")).get(path[1])
        if uris is None:
            return bytes(asked.params)
        kept = [
            bytes(uri)
            for uri in jsonrpc.elements(uris)
            if self._directory.owner_of_uri(jsonrpc.text(uri) or "") in (server, None)
        ]
        return jsonrpc.with_member(asked.params, path, b"[%b]" % b",".join(kept))

    async def _greetings(self, message: Message) -> dict[str, tuple[bytes, str]]:
        """Return the raw capabilities and the instructions of each server that is known or answers within the grace.

        All are asked; the answers of those that are known count the next time.
        """
        links, loop = self._era_negotiation.links(), asyncio.get_running_loop()
        asked = {name: loop.create_task(self._greet(link, message)) for name, link in links.items()}
        for task in asked.values():
            self._greeting.add(task)
            task.add_done_callback(self._greeting.discard)
        known = self._known_greetings(links)
        unknown = [task for name, task in asked.items() if name not in known]
        if unknown:
            await asyncio.wait(unknown, timeout=self._services.grace)
            known = self._known_greetings(links)
        return known

    def _known_greetings(self, links: Mapping[str, UpstreamLink]) -> dict[str, tuple[bytes, str]]:
        catalogs = self._services.known_catalogs
        found = {
            name: catalogs.find(link.spec, catalogs.variant_for(ProtocolEra.MODERN)) for name, link in links.items()
        }
        return {
            name: (each.capabilities, each.instructions) for name, each in found.items() if each and each.capabilities
        }

    async def _greet(self, link: UpstreamLink, message: Message) -> None:
        """Ask a server to describe itself."""
        catalogs = self._services.known_catalogs
        answer = await self._asking.ask(link, message.method or "", bytes(message.params))
        if answer.result:
            fields = jsonrpc.members(answer.result)
            greeting = bytes(fields.get("capabilities", b"{}")), jsonrpc.text(fields.get("instructions")) or ""
            catalogs.note(link.spec, catalogs.variant_for(ProtocolEra.MODERN), greeting=greeting)

    def _finished(self, exchange: ProxiedRequest) -> None:
        self._owners.pop(exchange, None)
