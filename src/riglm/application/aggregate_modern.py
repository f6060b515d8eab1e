"""Requests of the modern era in front of several upstreams."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from riglm.application.asking import Asking
from riglm.application.consensus import RETRY_SECONDS, Consensus
from riglm.application.directory import Directory
from riglm.application.exchange import Exchange
from riglm.application.identity import server_info
from riglm.application.merging import merged
from riglm.application.router import Route, Router
from riglm.application.services import Services
from riglm.application.shown_tools import ShownTools
from riglm.application.stateless import refusal
from riglm.domain import jsonrpc, parameters, protocol
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.naming import Naming
from riglm.domain.parameters import Envelope
from riglm.ports.downstream import NO_HEADERS, Caller, ModernService, ReplySink, Underway
from riglm.ports.upstream import EventMark, UpstreamLink, UpstreamPort

_log = logging.getLogger("riglm.proxy")
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_COMPLETE: Final = b'"resultType":"complete","ttlMs":0,"cacheScope":"private"'


class AggregateModern(ModernService):
    """Shows clients many servers as one; serves the modern era only while no server is known to lack it."""

    def __init__(self, services: Services, upstreams: Sequence[UpstreamPort], naming: Naming) -> None:
        """Nothing is asked before a client asks."""
        self._services = services
        self._upstreams = {upstream.spec.name: upstream for upstream in upstreams}
        self._links: dict[str, UpstreamLink] = {name: up.stateless(self) for name, up in self._upstreams.items()}
        self._consensus = Consensus(self._upstreams, self._links, services.grace)
        self._directory = Directory(self._upstreams, naming)
        self._asking = Asking()
        self._router = Router(self._directory, self._asking)
        self._shown = ShownTools(services)
        self._fresh_until: dict[tuple[str, str], float] = {}
        self._owners: dict[int, UpstreamLink] = {}
        self._working: dict[int, asyncio.Task[None]] = {}
        self._fetching: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._late_until: dict[str, float] = {}

    def received(
        self,
        message: Message,
        envelope: Envelope,
        sink: ReplySink,
        caller: Caller,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
    ) -> Exchange:
        """Take a request; its headers are made anew for each server, since names may differ there."""
        exchange = Exchange(message, sink, on_done=self._finished)
        self._work(exchange, self._answer(exchange, envelope, caller))
        return exchange

    def told(self, message: Message) -> None:
        """Pass a notification on to all."""
        for link in self._links.values():
            link.send(message)

    def cancel(self, underway: Underway, notice: Message | None = None) -> None:
        """The client gave a request up."""
        if not isinstance(underway, Exchange) or underway.done:
            return
        link = self._owners.get(id(underway))
        task = self._working.get(id(underway))
        if link is not None:
            link.cancel(underway, notice)
        if task is not None:
            task.cancel()
        underway.cancelled()

    def input_schema(self, tool: str) -> bytes | None:
        """The raw `inputSchema` of a tool that was listed."""
        return self._shown.input_schema(tool)

    def unsolicited(self, link: UpstreamLink, message: Message, event: EventMark | None = None) -> None:
        """In this era a server says nothing of its own accord; what comes nevertheless has nobody to go to."""

    async def _answer(self, exchange: Exchange, envelope: Envelope, caller: Caller) -> None:
        message = exchange.message
        if not await self._consensus.reached():
            exchange.replied(refusal(message, envelope.version), 400)
        elif message.method == "server/discover":
            await self._discover(exchange)
        elif message.method in protocol.LIST_MEMBER:
            await self._list(exchange, envelope, caller)
        elif message.method == "subscriptions/listen":
            await self._listen(exchange)
        else:
            await self._route(exchange, envelope, caller)

    async def _discover(self, exchange: Exchange) -> None:
        capabilities: dict[str, Any] = {}
        instructions = []
        for name, answer in (await self._ask_all(exchange.message)).items():
            fields = jsonrpc.members(answer.result) if answer.result else {}
            capabilities = merged(capabilities, jsonrpc.plain(fields.get("capabilities", b"{}")))
            words = jsonrpc.text(fields.get("instructions"))
            if words:
                instructions.append(f"# {name}\n{words}")
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

    async def _list(self, exchange: Exchange, envelope: Envelope, caller: Caller) -> None:
        method = exchange.message.method or ""
        await self._refresh((method,), exchange.message)
        entries = self._directory.joined(method)
        if method == "tools/list":
            session = self._services.sessions.of_request(caller, envelope.client, envelope.version or "", envelope.meta)
            entries = self._shown.select(session, entries)
        member = protocol.LIST_MEMBER[method].encode()
        raw = b'{"%b":[%b],%b}' % (member, b",".join(entries), _COMPLETE)
        exchange.replied(jsonrpc.result(exchange.message.id or b"null", raw))

    async def _refresh(self, methods: Sequence[str], asked: Message) -> None:
        """Ask for the lists whose time to live is over, all servers at once, waiting no longer than the grace.

        What comes later still counts for the next time. For a server that was late nobody waits for a while.
        """
        params = b'{"_meta":%b}' % bytes(jsonrpc.members(asked.params).get("_meta", b"{}"))
        now = time.monotonic()
        for key in [(method, server) for method in methods for server in self._consensus.links()]:
            if self._fresh_until.get(key, 0.0) <= now and key not in self._fetching:
                task = asyncio.get_running_loop().create_task(self._fetch(*key, params))
                self._fetching[key] = task
                task.add_done_callback(partial(self._fetched, key))
        waited_for = {
            server: task
            for (method, server), task in self._fetching.items()
            if method in methods and self._late_until.get(server, 0.0) <= now
        }
        if waited_for:
            await asyncio.wait(waited_for.values(), timeout=self._services.grace)
        for server, task in waited_for.items():
            if not task.done():
                self._late_until[server] = time.monotonic() + RETRY_SECONDS

    def _fetched(self, key: tuple[str, str], task: "asyncio.Task[None]") -> None:
        self._fetching.pop(key, None)

    async def _fetch(self, method: str, server: str, params: bytes) -> None:
        entries, answer = await self._asking.pages(self._links[server], method, protocol.LIST_MEMBER[method], params)
        if answer.result:
            ttl = jsonrpc.plain(jsonrpc.members(answer.result).get("ttlMs", b"0"))
            self._late_until.pop(server, None)
            self._directory.learn(method, server, entries)
            if isinstance(ttl, int | float):
                self._fresh_until[method, server] = time.monotonic() + ttl / 1000
        elif jsonrpc.error_code(answer) == jsonrpc.METHOD_NOT_FOUND:
            self._directory.learn(method, server, ())

    async def _route(self, exchange: Exchange, envelope: Envelope, caller: Caller) -> None:
        """Send a request to the server that it belongs to; what stays unknown is refused, or offered to all."""
        message = exchange.message
        route = self._router.find(message)
        if route is None or not self._directory.knows("tools/list", route.server):
            await self._refresh(self._router.lists_for(message), message)
            route = self._router.find(message)
        if message.method == "tools/call":
            session = self._services.sessions.of_request(caller, envelope.client, envelope.version or "", envelope.meta)
            server = route.server if route is not None else ""
            exchange.call = self._shown.call(session, server, parameters.read(message))
        if route is not None:
            self._forward(exchange, route)
        else:
            refused = self._router.unknown(message)
            exchange.replied(
                refused or await self._router.offer(message, self._consensus.links().values(), lambda _, __: None)
            )

    def _forward(self, exchange: Exchange, route: Route) -> None:
        link = self._links[route.server]
        self._owners[id(exchange)] = link
        exchange.on_reply = lambda _, reply: self._router.note(route.server, reply)
        exchange.message = route.message
        link.request(route.message, exchange)

    async def _listen(self, exchange: Exchange) -> None:
        """Listen to all servers, and tell the client once what all of them together granted."""
        message = exchange.message
        granted: dict[str, Any] = {}
        links = self._consensus.links()
        waiting = set(links)
        acknowledged = asyncio.Event()

        def related(server: str, inner: Message) -> None:
            nonlocal granted
            if inner.method == _ACKNOWLEDGED:
                granted = merged(granted, jsonrpc.plain(inner.params))
                waiting.discard(server)
                if not waiting:
                    acknowledged.set()
            else:
                exchange.related(self._as_asked(inner, message))

        tasks = [
            asyncio.get_running_loop().create_task(
                self._asking.ask(link, message.method or "", bytes(message.params), partial(related, name))
            )
            for name, link in links.items()
        ]
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(acknowledged.wait(), self._services.grace)
            note = jsonrpc.notification(_ACKNOWLEDGED, jsonrpc.encode(granted or {"notifications": {}}))
            exchange.related(self._as_asked(note, message))
            done, _ = await asyncio.wait(tasks)
            exchange.replied(next(iter(done)).result().replace(id=message.id or b"null"))
        finally:
            for task in tasks:
                task.cancel()

    def _as_asked(self, inner: Message, asked: Message) -> Message:
        """A notification of a server under the subscription that the client knows."""
        params = jsonrpc.with_member(inner.params or b"{}", ("_meta", protocol.META_SUBSCRIPTION), asked.id or b"null")
        return inner.replace(params=params)

    async def _ask_all(self, message: Message) -> dict[str, Message]:
        """What each server answers within the grace."""
        loop = asyncio.get_running_loop()
        tasks = {
            name: loop.create_task(self._asking.ask(link, message.method or "", bytes(message.params)))
            for name, link in self._consensus.links().items()
        }
        await asyncio.wait(tasks.values(), timeout=self._services.grace)
        for task in tasks.values():
            task.cancel()
        return {name: task.result() for name, task in tasks.items() if task.done() and not task.cancelled()}

    def _work(self, exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(exchange, work))
        self._working[id(exchange)] = task
        task.add_done_callback(lambda _: self._working.pop(id(exchange), None))

    async def _guarded(self, exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
        """Whatever goes wrong in riglm, the client gets an answer."""
        try:
            await work
        except Exception:  # noqa: BLE001  # fails open
            _log.exception("a request failed inside riglm")
            exchange.failed(ErrorKind.UNKNOWN, "Internal error in riglm: its log says more")

    def _finished(self, exchange: Exchange) -> None:
        self._owners.pop(id(exchange), None)
