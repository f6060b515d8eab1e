"""A client connection of the handshake era in front of several upstreams."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from riglm.application.asking import Asking
from riglm.application.directory import Directory
from riglm.application.errands import Errands
from riglm.application.exchange import Exchange
from riglm.application.held_back import HeldBack
from riglm.application.identity import server_info
from riglm.application.member import CAPABILITY, Member
from riglm.application.merging import merged
from riglm.application.router import Route, Router
from riglm.application.services import Services
from riglm.application.shown_tools import ShownTools
from riglm.domain import jsonrpc, parameters, protocol
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.naming import Naming
from riglm.domain.session import Client, Session
from riglm.ports.downstream import NO_HEADERS, Caller, ClientChannel, Conversation, ReplySink
from riglm.ports.upstream import EventMark, Stream, UpstreamLink, UpstreamPort

_COALESCE_SECONDS: Final = 0.25
_CHANGED: Final = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
_ANNOUNCEMENT: Final = {method: note for note, methods in _CHANGED.items() for method in methods}
_log = logging.getLogger("riglm.proxy")


class AggregateConversation(Conversation):
    """Shows one client many servers as one."""

    def __init__(
        self,
        services: Services,
        upstreams: Sequence[UpstreamPort],
        naming: Naming,
        caller: Caller,
        channel: ClientChannel,
    ) -> None:
        """A conversation that opens its links with the client's handshake."""
        self._services = services
        self._caller = caller
        self._held = HeldBack(channel)
        self._directory = Directory([upstream.spec.name for upstream in upstreams], naming)
        asking = Asking()
        self._asking = asking
        self._members = {upstream.spec.name: Member(upstream, self, asking, self._directory) for upstream in upstreams}
        self._errands = Errands()
        self._client = Client()
        self._session: Session | None = None
        self._shown = ShownTools(services)
        self._router = Router(self._directory, asking)
        self._open: dict[bytes, tuple[Exchange, UpstreamLink | None]] = {}
        self._working: set[asyncio.Task[None]] = set()
        self._announcing: dict[str, asyncio.TimerHandle] = {}

    @property
    def session(self) -> Session:
        """The session as known now."""
        if self._session is None:
            self._session = self._services.sessions.of_connection(self._caller, self._client, "")
        return self._session

    def received(
        self, message: Message, sink: ReplySink, headers: Mapping[bytes, bytes] = NO_HEADERS, *, resumable: bool = False
    ) -> Exchange | None:
        """Take a message of the client."""
        if message.id is None or message.method is None:
            self._told(message)
            return None
        exchange = Exchange(message, sink, on_done=self._finished)
        self._open[jsonrpc.id_key(message.id)] = (exchange, None)
        method = message.method
        if method == "initialize":
            self._work(exchange, self._initialize(exchange))
        elif method == "ping":
            exchange.replied(jsonrpc.result(message.id, b"{}"))
        elif method == "logging/setLevel":
            self._work(exchange, self._tell_all(exchange, "logging"))
        elif method in protocol.LIST_MEMBER:
            self._work(exchange, self._list(exchange))
        else:
            self._route(exchange)
        return exchange

    def listen(self, *, listening: bool) -> None:
        """Pass on what was kept, and ask every upstream for more."""
        if listening:
            self._held.flush()
        for member in self._members.values():
            member.listen(listening=listening)

    def resume(self, last_event_id: bytes, stream: Stream) -> None:
        """The streams of several servers cannot be told apart by one place."""
        stream.ended()

    def unsolicited(self, link: UpstreamLink, message: Message, event: EventMark | None = None) -> None:
        """Pass on what a server says of its own accord; changed lists are announced once for all."""
        methods = _CHANGED.get(message.method or "")
        if methods is not None:
            for method in methods:
                self._members[link.spec.name].forget(method)
            self._announce(message.method or "")
            return
        outward = self._errands.outward(link, message)
        if self._held.push(outward):
            return
        under_way = [exchange for exchange, owner in self._open.values() if owner is link]
        if outward.is_request and under_way:
            under_way[-1].sink.related(outward)
        else:
            self._held.keep(outward)

    async def close(self) -> None:
        """End all links."""
        for timer in self._announcing.values():
            timer.cancel()
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        for exchange, _ in list(self._open.values()):
            exchange.cancelled()
        if self._session is not None:
            self._services.sessions.closed(self._session)
        await asyncio.gather(*(member.close() for member in self._members.values()), return_exceptions=True)

    def _told(self, message: Message) -> None:
        if message.is_response:
            found = self._errands.homeward(message)
            if found is not None:
                found[0].send(found[1])
        elif message.method == "notifications/cancelled":
            self._cancel(message)
        elif message.method == "notifications/progress":
            owner = self._errands.owner_of_progress(message)
            if owner is not None:
                owner.send(message)
        elif message.method != "notifications/initialized":
            for member in self._members.values():
                if member.is_open:
                    member.link.send(message)

    def _cancel(self, notice: Message) -> None:
        exchange, link = self._open.get(parameters.cancelled_id(notice) or b"", (None, None))
        if exchange is not None:
            if link is not None:
                link.cancel(exchange, notice)
            exchange.cancelled()

    async def _initialize(self, exchange: Exchange) -> None:
        message = exchange.message
        self._client, asked = parameters.client_of(message)
        handshake = bytes(message.params) or b"{}"
        opening = [member.open(handshake) for member in self._members.values()]
        await asyncio.wait(opening, timeout=self._services.grace)
        for task, member in zip(opening, self._members.values(), strict=True):
            if not task.done():
                self._work(None, self._join_later(member, task))
        version = asked if asked in protocol.HANDSHAKE_VERSIONS else protocol.HANDSHAKE_VERSIONS[-1]
        self.session.protocol_version = version
        self._services.tracking.session_changed(self.session)
        answer = {"protocolVersion": version, "capabilities": self._capabilities(), "serverInfo": server_info()}
        instructions = "\n\n".join(
            f"# {member.name}\n{member.instructions}" for member in self._members.values() if member.instructions
        )
        if instructions:
            answer["instructions"] = instructions
        exchange.replied(jsonrpc.result(message.id or b"null", jsonrpc.encode(answer)))

    def _capabilities(self) -> dict[str, Any]:
        """What all servers together can do; lists can always change, since a server may come or go."""
        joined: dict[str, Any] = {}
        for member in self._members.values():
            joined = merged(joined, {name: jsonrpc.plain(raw) for name, raw in member.capabilities.items()})
        for name in ("tools", "resources", "prompts"):
            if name in joined or not all(member.is_open for member in self._members.values()):
                joined[name] = merged(joined.get(name, {}), {"listChanged": True})
        return joined

    async def _join_later(self, member: Member, opening: "asyncio.Task[bool]") -> None:
        if await asyncio.shield(opening):
            for method, capability in CAPABILITY.items():
                if member.has(capability):
                    self._announce(_ANNOUNCEMENT[method])

    async def _list(self, exchange: Exchange) -> None:
        method = exchange.message.method or ""
        stale = {member: member.fetch(method) for member in self._members.values() if not member.is_fresh(method)}
        waited_for = [task for member, task in stale.items() if not member.is_late(self._services.grace)]
        if waited_for:
            await asyncio.wait(waited_for, timeout=self._services.grace)
        for task in stale.values():
            if not task.done():
                task.add_done_callback(lambda task: self._came_late(method, task))
        entries = self._directory.joined(method)
        if method == "tools/list":
            entries = self._shown.select(self.session, entries)
        raw = b'{"%b":[%b]}' % (protocol.LIST_MEMBER[method].encode(), b",".join(entries))
        exchange.replied(jsonrpc.result(exchange.message.id or b"null", raw))

    def _came_late(self, method: str, task: "asyncio.Task[bool]") -> None:
        if not task.cancelled() and task.exception() is None and task.result():
            self._announce(_ANNOUNCEMENT[method])

    def _route(self, exchange: Exchange) -> None:
        """Send a request to the server that it belongs to, at once if that is known."""
        route = self._router.find(exchange.message)
        if route is not None:
            self._note_call(exchange, route.server)
            self._forward(exchange, route)
        else:
            self._work(exchange, self._search(exchange))

    async def _search(self, exchange: Exchange) -> None:
        """Look for the server in fresh lists; what stays unknown is refused, or offered to all."""
        message = exchange.message
        stale = [
            member.fetch(method)
            for method in self._router.lists_for(message)
            for member in self._members.values()
            if not member.is_fresh(method)
        ]
        if stale:
            await asyncio.wait(stale, timeout=self._services.grace)
        route = self._router.find(message)
        self._note_call(exchange, route.server if route is not None else "")
        if route is not None:
            self._forward(exchange, route)
            return
        refusal = self._router.unknown(message)
        if refusal is None:
            links = [member.link for member in self._members.values() if member.is_open]
            refusal = await self._router.offer(
                message, links, lambda link, inner: exchange.related(self._errands.outward(link, inner))
            )
        exchange.replied(refusal)

    def _note_call(self, exchange: Exchange, server: str) -> None:
        if exchange.message.method == "tools/call":
            given = parameters.read(exchange.message)
            session = self.session
            if given.meta:
                session = self._services.sessions.of_call(session, self._caller, given.meta)
            exchange.call = self._shown.call(session, server, given)

    def _forward(self, exchange: Exchange, route: Route) -> None:
        member = self._members[route.server]
        if not member.is_open:
            self._work(exchange, self._once_open(exchange, member, route))
            return
        self._open[jsonrpc.id_key(exchange.message.id or b"null")] = (exchange, member.link)
        exchange.on_server_message = lambda inner: self._errands.outward(member.link, inner)
        exchange.on_reply = lambda _, reply: self._router.note(route.server, reply)
        exchange.message = route.message
        member.link.request(route.message, exchange)

    async def _once_open(self, exchange: Exchange, member: Member, route: Route) -> None:
        await member.fetch("tools/list")
        if member.is_open:
            self._forward(exchange, route)
        else:
            exchange.failed(ErrorKind.UNAVAILABLE, f"upstream {member.name!r} is not available")

    async def _tell_all(self, exchange: Exchange, capability: str) -> None:
        message = exchange.message
        asked = [
            self._asking.ask(member.link, message.method or "", bytes(message.params))
            for member in self._members.values()
            if member.is_open and member.has(capability)
        ]
        if asked:
            tasks = [asyncio.ensure_future(question) for question in asked]
            await asyncio.wait(tasks, timeout=self._services.grace)
            errors = [task.result() for task in tasks if task.done() and task.result().error]
            if len(errors) == len(tasks):
                exchange.replied(errors[0].replace(id=message.id or b"null"))
                return
        exchange.replied(jsonrpc.result(message.id or b"null", b"{}"))

    def _announce(self, note: str) -> None:
        """Tell the client of a changed list, once for changes that come close together."""
        if note not in self._announcing:
            loop = asyncio.get_running_loop()
            self._announcing[note] = loop.call_later(_COALESCE_SECONDS, self._announced, note)

    def _announced(self, note: str) -> None:
        del self._announcing[note]
        message = jsonrpc.notification(note)
        if not self._held.push(message):
            self._held.keep(message)

    def _work(self, exchange: Exchange | None, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(exchange, work))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _guarded(self, exchange: Exchange | None, work: Coroutine[Any, Any, None]) -> None:
        """Whatever goes wrong in riglm, the client gets an answer."""
        try:
            await work
        except Exception:  # noqa: BLE001  # fails open
            _log.exception("a request failed inside riglm")
            if exchange is not None:
                exchange.failed(ErrorKind.UNKNOWN, "Internal error in riglm: its log says more")

    def _finished(self, exchange: Exchange) -> None:
        key = jsonrpc.id_key(exchange.message.id or b"null")
        if self._open.get(key, (None, None))[0] is exchange:
            del self._open[key]
