"""The servers behind a client's connection, or behind all modern clients with the same rights: one or several.

In front of one server, messages pass as they are. In front of several, names are prefixed, lists and openings are
merged, and each request is routed to the server that it belongs to.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from riglm.application.owners import server_info
from riglm.application.proxy.bridge import BridgeLink
from riglm.application.proxy.client_messages import ANNOUNCEMENT, DebouncedNotifier, ServerRequests
from riglm.application.proxy.era_negotiation import OneServerEra, SeveralServersEra
from riglm.application.proxy.eras import MODERN, Era
from riglm.application.proxy.member import CAPABILITY, NOTHING, Member
from riglm.application.proxy.merging import Directory, MergedList, MergedListCache, merged, wait_for_each
from riglm.application.proxy.parts import ProxyParts
from riglm.application.proxy.request import LIST, Request, ask, failure, list_pages, next_cursor
from riglm.application.proxy.routing import BY_URI, Route, Router
from riglm.application.proxy.subscriptions import LISTEN, MergedSubscription, Subscriptions
from riglm.domain import jsonrpc, protocol, request_params
from riglm.domain.client_support import list_timeout_of, longest_wait_of, support_of
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.protocol import TOOLS_CHANGED
from riglm.domain.session import ProtocolEra
from riglm.domain.tool import ToolCatalog
from riglm.ports.upstream import NullServerMessageHandler, ServerMessageHandler, UpstreamLink, UpstreamPort

if TYPE_CHECKING:
    from riglm.application.proxy.connection import Connection
    from riglm.application.proxy.stage import Outcome

LISTING_SECONDS: Final = 5.0
"""Seconds that a meta-tool waits for the catalog that it needs."""

_REOPENING_SECONDS: Final = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
_RESOURCE_NOT_FOUND: Final = -32002
_LISTS: Final = ("tools", "prompts", "resources")
_NONE: Final[Mapping[str, Any]] = {}
_NO_TASKS: Final[frozenset[asyncio.Task[Any]]] = frozenset()
_NO_CLIENT: Final = NullServerMessageHandler()
_Result = TypeVar("_Result")
_log: Final = logging.getLogger("riglm.proxy")


class Upstreams(ServerMessageHandler):
    """The servers as one.

    `only` is the one server whose messages pass as they are; None if several are shown as one. `negotiation` decides
    whether modern requests are served; None in the handshake era.
    """

    def __init__(
        self,
        parts: ProxyParts,
        era: Era,
        upstreams: Sequence[UpstreamPort],
        merged_lists: MergedListCache | None = None,
        connection: "Connection | None" = None,
    ) -> None:
        """`merged_lists` is None in front of one server. `connection` is that of a client of the handshake era."""
        self.parts = parts
        self.era = era
        self.connection = connection
        self.listed_names = NOTHING
        """The names in the last list that a client got from here, by server or by public name."""
        self.tool_changes = 0
        """How often servers announced that their tools changed."""
        self.written_list: tuple[tuple[object, object], bytes] | None = None
        """The last list that was written: catalog and selection, and the raw result."""
        self._catalog: ToolCatalog | None = None
        self._catalog_until = 0.0
        self.members = {each.spec.name: self._create_member(each) for each in upstreams}
        self.only = next(iter(self.members.values())) if merged_lists is None else None
        self.negotiation: OneServerEra | SeveralServersEra | None = None
        if era is MODERN:
            self.subscriptions = Subscriptions()
            self.negotiation = (
                SeveralServersEra(self.members, parts.grace, parts.catalogs)
                if self.only is None
                else OneServerEra(self.only)
            )
        self._list_timeout = parts.grace
        self._longest_wait = parts.longest_list
        self._log_level = b""
        self._can_log = False
        self._absences: dict[str, str] = {}
        self._background: frozenset[asyncio.Task[Any]] = _NO_TASKS
        self._own: Mapping[str, Callable[[Request], Outcome]] = _NONE
        """What riglm answers itself in front of several servers."""
        if merged_lists is not None:
            self.server_requests = ServerRequests()
            if connection is not None:
                self.announcer = DebouncedNotifier(connection.held.push)
            self._merged_lists = merged_lists
            self.directory = Directory(self.members, merged_lists)
            self.router = Router(self.directory)
            self._own = {
                era.opening: self._open if era is not MODERN else self._discover,
                **dict.fromkeys(protocol.LIST_MEMBER, self._list),
                **({LISTEN: self._listen} if era is MODERN else {"ping": _pong, "logging/setLevel": self._set_level}),
            }
            if era is MODERN:
                for member in self.members.values():
                    member.recall(parts.catalogs.variant_for(ProtocolEra.MODERN))

    def _create_member(self, upstream: UpstreamPort) -> Member:
        if self.era is MODERN:
            return Member(self, upstream, upstream.stateless(self), is_open=True)
        if upstream.supports(ProtocolEra.HANDSHAKE) is False:
            return Member(self, upstream, BridgeLink(upstream, self), is_open=False)
        principal = "" if self.connection is None else self.connection.caller.principal
        return Member(self, upstream, upstream.connect(self, principal), is_open=False)

    # ---- requests

    def resolve(self, request: Request) -> "Outcome":
        """Find the server of a request, and the server's name for its tool; what concerns all servers is answered."""
        only = self.only
        if only is not None:
            request.member, request.own_name = only, request.tool
            if request.method == LIST:
                request.tools_version = only.link.tools_version
            return None
        request.headers = {}
        answer = self._own.get(request.method)
        if answer is not None:
            return answer(request)
        route = self.router.find(request.message)
        if route is None:
            return self._search(request)
        if self.era.needs_schemas and request.tool and not self.directory.knows(LIST, route.server):
            return self._search(request, (route.server,))
        return self._take(request, route)

    def send(self, request: Request) -> None:
        """Send a request to its server, once that is open."""
        member = request.member
        if member is None:
            raise RuntimeError(f"{request.method} has no server")
        if member.is_open or self.only is not None:
            request.send(member.link)
        else:
            request.start(self._send_once_open(request, member))

    async def _send_once_open(self, request: Request, member: Member) -> None:
        if await member.ready():
            request.send(member.link)
        elif not request.done:
            request.failure = ErrorKind.UNAVAILABLE
            reason = f"upstream {member.name!r} is not available: {member.reason}"
            request.proxy.finish(request, failure(request.id, ErrorKind.UNAVAILABLE, reason))

    def names_of(self, tool: str) -> tuple[str, ...]:
        """Return all names under which clients may know the tool that `tool` reaches."""
        return (tool,) if self.only is not None else self.directory.name_patterns(tool)

    def input_schema(self, tool: str) -> bytes | None:
        """Return the raw `inputSchema` of a listed tool, by the name that clients use."""
        server, own_name = ("", tool)
        if self.only is not None:
            server = self.only.name
        elif (owner := self.directory.owner(LIST, tool)) is not None:
            server, own_name = owner
        schema = self.parts.listed.input_schema(server, own_name)
        return bytes(schema) if schema else None

    def _take(self, request: Request, route: Route) -> "Outcome":
        member, negotiation = self.members[route.server], self.negotiation
        if isinstance(negotiation, SeveralServersEra) and not negotiation.takes_part(member):
            request.failure = ErrorKind.UNAVAILABLE
            reason = f"upstream {route.server!r} supports only the handshake era"
            return failure(request.id, ErrorKind.UNAVAILABLE, reason)
        request.member, request.message, request.own_name = member, route.message, route.own_name
        return None

    async def _search(self, request: Request, servers: Collection[str] = ()) -> Message | None:
        """Look for the server in fresh lists; what stays unknown is refused, or offered to all."""
        methods = self.router.lists_for(request.method)
        members = [each for each in self._taking_part().values() if not servers or each.name in servers]
        await self.refresh(methods, request, self.parts.grace, members)
        route = self.router.find(request.message)
        if route is not None:
            found = self._take(request, route)
            return found if found is None or isinstance(found, Message) else await found
        if request.tool is not None or request.method == "tools/call":
            return None  # the call is refused, and recorded
        reason = self.router.unknown(request.message)
        if reason is not None:
            return jsonrpc.error(request.id, jsonrpc.INVALID_PARAMS, reason)
        return await self._offer(request)

    async def _offer(self, request: Request) -> Message:
        """Ask one server after the other until one knows the request; unreachable ones are passed over."""
        unknown = {jsonrpc.METHOD_NOT_FOUND}
        if request.method in BY_URI:
            unknown |= {_RESOURCE_NOT_FOUND, jsonrpc.INVALID_PARAMS}
        reply = jsonrpc.error(request.id, jsonrpc.METHOD_NOT_FOUND, f"Method not found: {request.method}")
        params = bytes(request.message.params) or b"{}"
        for member in [each for each in self._taking_part().values() if each.is_open]:
            found, reason = await ask(member.link, request.method, params, request.related_by(member.link))
            if reason is ErrorKind.UNAVAILABLE:
                continue
            reply = found
            if not reply.error or jsonrpc.error_code(reply) not in unknown:
                break
        return reply.replace(id=request.id)

    def _taking_part(self) -> Mapping[str, Member]:
        return {name: member for name, member in self.members.items() if self._takes_part(member)}

    def _takes_part(self, member: Member) -> bool:
        """Return True if a server supports the era."""
        negotiation = self.negotiation
        return not isinstance(negotiation, SeveralServersEra) or negotiation.takes_part(member)

    # ---- opening

    def opened(self, request: Request, reply: Message) -> "Outcome":
        """Return the reply to an opening request, given that of the server."""
        if self.negotiation is not None:
            return self.negotiation.discovered(request, reply)
        if self.only is None or not reply.error:
            return reply
        return self._cross(request, self.only, reply)

    async def _cross(self, request: Request, member: Member, refusal: Message) -> Message:
        """Open over a bridge a server that supports only the modern era."""
        if not await member.cross(refusal, request.failure):
            return refusal
        params, related = bytes(request.asked.params) or b"{}", request.related_by(member.link)
        reply, request.failure = await ask(member.link, request.method, params, related)
        return reply.replace(id=request.id)

    async def _open(self, request: Request) -> Message:
        """Open all servers with the client's params, and wait for those of which nothing is known from before."""
        client, asked = request_params.client_of(request.asked)
        self.expect_client(client.name)
        params = bytes(request.asked.params) or b"{}"
        opening = {member: member.open(params) for member in self.members.values()}
        unknown = [task for member, task in opening.items() if not member.is_known]
        if unknown:
            await asyncio.wait(unknown, timeout=self.parts.grace)
        for member, task in opening.items():
            if not task.done():
                task.add_done_callback(partial(self._opened_late, member))
            elif not task.result():
                self._start(self._reopen(member))
        capabilities = self._capabilities()
        self._can_log = "logging" in capabilities
        result: dict[str, Any] = {
            "protocolVersion": asked if asked in protocol.HANDSHAKE_VERSIONS else protocol.HANDSHAKE_VERSIONS[-1],
            "capabilities": capabilities,
            "serverInfo": server_info(),
        }
        return self._opening_result(request, result, {each.name: each.instructions for each in self.members.values()})

    async def _discover(self, request: Request) -> Message:
        capabilities: dict[str, Any] = {}
        members = self._taking_part()
        declared = await self._declared(request, members)
        if len(declared) < len(members):
            capabilities = {name: {"listChanged": True} for name in _LISTS}  # of those that reply later
        for raw, _ in declared.values():
            capabilities = merged(capabilities, jsonrpc.plain(Raw(raw)))
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
        return self._opening_result(request, result, {name: words for name, (_, words) in declared.items()})

    @staticmethod
    def _opening_result(request: Request, result: dict[str, Any], instructions: Mapping[str, str]) -> Message:
        """Return the reply to an opening request, with the instructions of each server under its name."""
        words = "\n\n".join(f"# {name}\n{each}" for name, each in instructions.items() if each)
        return jsonrpc.result(request.id, jsonrpc.encode(result | ({"instructions": words} if words else {})))

    def expect_client(self, name: str) -> None:
        """Let lists wait for as long as a client of this name does."""
        known, parts = support_of(name), self.parts
        self._list_timeout = list_timeout_of(known, parts.grace, parts.longest_list)
        self._longest_wait = longest_wait_of(known, parts.longest_list)

    def _capabilities(self) -> dict[str, Any]:
        """Return what all known servers support together; lists can always change, since a server may come or go."""
        joined: dict[str, Any] = {}
        for member in self.members.values():
            joined = merged(joined, {name: jsonrpc.plain(raw) for name, raw in member.capabilities.items()})
        all_known = all(member.is_known for member in self.members.values())
        for name in dict.fromkeys(CAPABILITY.values()):
            if name in joined or not all_known:
                joined[name] = merged(joined.get(name, {}), {"listChanged": True})
        return joined if all_known else {"logging": {}, **joined}  # to report the servers that are absent

    async def _declared(self, request: Request, members: Mapping[str, Member]) -> dict[str, tuple[bytes, str]]:
        """Return the raw capabilities and the instructions of each server that is known or replies within the grace.

        All are asked; the replies of those that are known count the next time.
        """
        asked = {name: self._start(self._ask_to_declare(member, request)) for name, member in members.items()}
        known = self._stored_declarations(members)
        unknown = [task for name, task in asked.items() if name not in known]
        if unknown:
            await asyncio.wait(unknown, timeout=self.parts.grace)
            known = self._stored_declarations(members)
        return known

    def _stored_declarations(self, members: Mapping[str, Member]) -> dict[str, tuple[bytes, str]]:
        catalogs = self.parts.catalogs
        variant = catalogs.variant_for(ProtocolEra.MODERN)
        found = {name: catalogs.find(member.upstream.spec, variant) for name, member in members.items()}
        return {
            name: (each.capabilities, each.instructions) for name, each in found.items() if each and each.capabilities
        }

    async def _ask_to_declare(self, member: Member, request: Request) -> None:
        related = self.handler_for(member.link)
        reply, _ = await ask(member.link, request.method, bytes(request.asked.params), related)
        if reply.result:
            fields = jsonrpc.members(reply.result)
            greeting = bytes(fields.get("capabilities", b"{}")), jsonrpc.text(fields.get("instructions")) or ""
            catalogs = self.parts.catalogs
            catalogs.note(member.upstream.spec, catalogs.variant_for(ProtocolEra.MODERN), greeting=greeting)

    def _opened_late(self, member: Member, opening: "asyncio.Task[bool]") -> None:
        if opening.cancelled():
            return
        if opening.result():
            self._announce_lists(member)
        else:
            self._start(self._reopen(member))

    async def _reopen(self, member: Member) -> None:
        """Try again to open a server that failed."""
        for seconds in _REOPENING_SECONDS:
            await asyncio.sleep(seconds)
            if await asyncio.shield(member.start_opening()):
                self._announce_lists(member)
                return

    def _announce_lists(self, member: Member) -> None:
        """Set the log level of a server that has just been opened, and announce the lists that the client lacks."""
        if self._log_level and member.has("logging"):
            self._start(self._set_level_of(member))
        for method, capability in CAPABILITY.items():
            is_awaited = member.is_fetching(method) or self.directory.knows(method, member.name)
            if member.has(capability) and not is_awaited:
                self.list_changed(method)

    async def _set_level(self, request: Request) -> Message:
        """Set the log level on all servers that log, now and later; an error if all of them refuse."""
        self._log_level = bytes(request.asked.params)
        members = [each for each in self.members.values() if each.is_open and each.has("logging")]
        tasks = [self._start(self._set_level_of(each)) for each in members]
        if tasks:
            done, _ = await asyncio.wait(tasks, timeout=self.parts.grace)
            errors = [task.result() for task in done if not task.cancelled() and task.result().error]
            if len(errors) == len(tasks):
                return errors[0].replace(id=request.id)
        return jsonrpc.result(request.id, b"{}")

    async def _set_level_of(self, member: Member) -> Message:
        reply, _ = await ask(member.link, "logging/setLevel", self._log_level, self.handler_for(member.link))
        return reply

    # ---- lists

    def review_page(self, request: Request, reply: Message) -> Message:
        """Return a page of tools without what is held back, and set the catalog of its request."""
        if self.only is not None and reply.result and "tools" in jsonrpc.members(reply.result):
            cursor = bytes(jsonrpc.members(request.asked.params)["cursor"]) if request.has_cursor else b""
            reply, request.catalog = self.only.review_page(reply, cursor, request.tools_version)
        return reply

    def note_list(self, request: Request, catalog: ToolCatalog) -> None:
        """A client gets a list from this catalog; it does not count if tools changed while it was in flight."""
        self._catalog = catalog
        is_current = request.changes == self.tool_changes
        self._catalog_until = time.monotonic() + self.era.catalog_seconds if is_current else 0.0
        if request.handshake is not None:
            request.handshake.tool_changes.note_list()

    def tools_changed(self) -> None:
        """A server announced that its tools changed."""
        self.tool_changes += 1
        self._catalog_until = 0.0

    async def whole_catalog(self, request: Request) -> ToolCatalog | None:
        """Return all tools for a meta-tool; those of the last list if the servers take too long to list them again."""
        if self._catalog is None or time.monotonic() >= self._catalog_until:
            changes = self.tool_changes
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LISTING_SECONDS):
                    catalog = await self._list_tools(request)
                    if catalog is not None:
                        filtering = self.parts.filtering
                        is_guarded = filtering is not None and filtering.guards
                        self._catalog = self.parts.reader.read(catalog, plainly=is_guarded)
                        if changes == self.tool_changes:
                            self._catalog_until = time.monotonic() + self.era.catalog_seconds
        return self._catalog

    async def _list_tools(self, request: Request) -> ToolCatalog | None:
        only = self.only
        if only is None:
            joined = await self.joined(LIST, request)
            return None if joined is None else self._catalog_of(joined)
        version = only.link.tools_version
        params, related = self.era.own_params(request), request.related_by(only.link)
        pages, last = await list_pages(only.link, LIST, params, related)
        if not last.result:
            return None
        cursors = [b"", *map(next_cursor, pages)]
        for page, cursor in zip(pages, cursors, strict=False):
            only.review_page(page, cursor, version)
        return self.parts.listed.of(only.name)

    async def _list(self, request: Request) -> Message:
        """Return a list of all servers."""
        joined = await self.joined(request.method, request)
        if joined is None:
            request.failure = ErrorKind.UNAVAILABLE
            reasons = "; ".join(f"{name!r}: {member.reason}" for name, member in self._taking_part().items())
            return failure(request.id, ErrorKind.UNAVAILABLE, f"no upstream has a list: {reasons}")
        result = joined.result(protocol.LIST_MEMBER[request.method], self.era.list_fields)
        if request.method == LIST:
            request.catalog = self._catalog_of(joined)
            missing = request.catalog.missing
            if missing:
                self._merged_lists.report_missing(missing)
            for words in self._new_absences() if self._can_log else ():
                data = {"level": "warning", "logger": "riglm", "data": words}
                request.sink.related(jsonrpc.notification("notifications/message", jsonrpc.encode(data)))
            if missing:
                result = jsonrpc.with_member(result, ("_meta", protocol.META_MISSING), jsonrpc.encode(missing))
        return jsonrpc.result(request.id, result)

    async def joined(self, method: str, request: Request) -> MergedList | None:
        """Return the servers' lists as one; None if no server's list could be had.

        A list waits for each server until its list timeout is over, counted from when that server was first asked
        without a reply; and if no list is known then, for the first one. What comes later is announced.
        """
        if request.envelope is not None:
            self.expect_client(request.envelope.client.name)
        members = self._taking_part()
        for member in self.members.values():
            if member.name not in members:
                member.withdraw()
        fetching = await self.refresh((method,), request, self._list_timeout, members.values())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._longest_wait - self._list_timeout):
                while (open_ends := [t for t in fetching if not t.done()]) and not self.directory.knows_any(method):
                    await asyncio.wait(open_ends, return_when=asyncio.FIRST_COMPLETED)
        for task in [each for each in fetching if not each.done()]:
            task.add_done_callback(partial(self._came_late, method))
        is_known = self.directory.knows_any(method) or (method == LIST and self._missing())
        return self.directory.joined(method) if is_known else None

    async def refresh(
        self, methods: Iterable[str], request: Request | None, seconds: float, members: Iterable[Member]
    ) -> "list[asyncio.Task[bool]]":
        """Request lists that are not fresh, and wait for unknown ones for some seconds; returns what is fetched."""
        timeouts, fetching = {}, []
        for member in members:
            for method in [each for each in methods if not member.is_fresh(each)]:
                task = member.fetch(method, request)
                fetching.append(task)
                if not member.is_unconfirmed(method):
                    timeouts[task] = member.waiting_since + seconds - time.monotonic()
        await wait_for_each(timeouts)
        return fetching

    async def fetch_all(self, methods: Iterable[str]) -> None:
        """Request lists of all servers, however long it takes."""
        await asyncio.gather(*(each.fetch(method, None) for method in methods for each in self.members.values()))

    def list_changed(self, method: str) -> None:
        """A list changed after clients had got it."""
        if self.connection is not None:
            self.announcer.announce(ANNOUNCEMENT[method])
        else:
            self.subscriptions.announce(ANNOUNCEMENT[method])

    def _came_late(self, method: str, fetching: "asyncio.Task[bool]") -> None:
        if not fetching.cancelled() and fetching.exception() is None and fetching.result():
            self.list_changed(method)

    def _catalog_of(self, joined: MergedList) -> ToolCatalog:
        self.parts.owners.note(joined.owners)  # the filter decides by servers
        missing = self._missing()
        catalog = joined.catalog
        return ToolCatalog(catalog.tools, missing=missing) if missing else catalog

    def _missing(self) -> tuple[str, ...]:
        """Return the names of the servers whose tools are still awaited and not known from before."""
        return tuple(
            name
            for name, member in self.members.items()
            if member.is_fetching(LIST) and not self.directory.knows(LIST, name) and self._takes_part(member)
        )

    def _new_absences(self) -> list[str]:
        """Return warnings about servers whose tools the client does not get, each of them once."""
        level = jsonrpc.text(jsonrpc.members(self._log_level).get("level")) if self._log_level else None
        if level not in (None, "debug", "info", "notice", "warning"):
            return []
        missing, found = self._missing(), []
        for name, member in self.members.items():
            if name in missing:
                words = f"MCP server {name!r} has not answered yet. Its tools are listed when it does."
            elif member.is_open or self.directory.knows(LIST, name):
                continue
            else:
                words = f"MCP server {name!r} is not available: {member.reason}"
            if self._absences.get(name) != words:
                self._absences[name] = words
                found.append(words)
        return found

    # ---- messages outside of requests

    def to_client(self, message: Message, link: UpstreamLink | None) -> Message | None:
        """Return a message of a server that belongs to a request, as the client gets it; None if it does not."""
        if message.method == TOOLS_CHANGED:
            self.tools_changed()
        if self.only is not None or self.connection is None or link is None:
            return message
        return self.server_requests.to_client(link, message)

    def unsolicited(self, link: UpstreamLink, message: Message) -> None:
        """Forward a server message that belongs to no request."""
        if message.method == TOOLS_CHANGED:
            self.tools_changed()
        if self.connection is None:
            _NO_CLIENT.unsolicited(link, message)
        else:
            self.connection.forward(link, message)

    def disconnected(self, link: UpstreamLink) -> None:
        """Withdraw the requests of a server that has ended: its next process must not get the responses."""
        if self.connection is not None and self.only is None:
            for notice in self.server_requests.withdraw_all(link):
                self.connection.held.push(notice)

    def handler_for(self, link: UpstreamLink) -> Callable[[Message], None]:
        """Return a callback for what a server sends while riglm requests something that no client waits for."""
        return partial(self.unsolicited, link)

    def notify(self, message: Message) -> None:
        """Send a notification, or a response to a server, to the server that it is for; others to all."""
        if self.only is not None:
            self.only.link.send(message)
        elif message.is_response:
            self.server_requests.take_response(message)
        elif message.method == "notifications/progress":
            self.server_requests.take_progress(message)
        elif message.method != "notifications/initialized":
            for member in self.members.values():
                if member.is_open:
                    member.link.send(message)

    def listen(self, *, listening: bool) -> None:
        """Set whether the client has a stream open for server messages."""
        for member in self.members.values():
            member.listen(listening=listening)

    async def _listen(self, request: Request) -> Message:
        members = self._taking_part()
        if not members:
            request.failure = ErrorKind.UNAVAILABLE
            return failure(request.id, ErrorKind.UNAVAILABLE, "no upstream supports the modern era any more")
        subscription = MergedSubscription(request, members, partial(self._wanted_of, request.asked))
        self.subscriptions.merged.add(subscription)
        try:
            return await subscription.run(self.parts.grace)
        finally:
            self.subscriptions.merged.discard(subscription)

    def _wanted_of(self, asked: Message, server: str) -> bytes:
        """Return the params of a subscription without the resources that are known to be another server's."""
        path = ("notifications", "resourceSubscriptions")
        params = jsonrpc.members(asked.params)
        uris = jsonrpc.members(params.get(path[0], b"{}")).get(path[1])
        if uris is None:
            return bytes(asked.params)
        owner = self.directory.owner_of_uri
        kept = [bytes(uri) for uri in jsonrpc.elements(uris) if owner(jsonrpc.text(uri) or "") in (server, None)]
        return jsonrpc.with_member(asked.params, path, b"[%b]" % b",".join(kept))

    async def close(self) -> None:
        """Close all links."""
        for task in self._background:
            task.cancel()
        if self.connection is not None and self.only is None:
            self.announcer.close()
        closing = (member.close() for member in self.members.values())
        await asyncio.gather(*self._background, *closing, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, _Result]) -> "asyncio.Task[_Result]":
        """Do something in the background, at most until the links are closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._background |= {task}
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._background -= {task}


def _pong(request: Request) -> Message:
    return jsonrpc.result(request.id, b"{}")
