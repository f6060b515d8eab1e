"""One of the servers behind a client's connection, or behind all modern clients with the same rights."""

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from riglm.application.owners import server_info
from riglm.application.proxy.bridge import BridgeLink, find_bridge
from riglm.application.proxy.eras import MAX_TTL_SECONDS
from riglm.application.proxy.merging import list_entries
from riglm.application.proxy.request import LIST, Request, ask, list_pages
from riglm.domain import jsonrpc, protocol
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.session import ProtocolEra
from riglm.domain.tool import ToolCatalog
from riglm.ports.upstream import UpstreamLink, UpstreamPort

if TYPE_CHECKING:
    from riglm.application.proxy.upstreams import Upstreams

CAPABILITY: Final = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "prompts/list": "prompts",
}
"""Capabilities by list method."""


_RETRY_SECONDS: Final = 5.0
_MAX_TRIES: Final = 2
_NO_REPLY: Final = frozenset({ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT})
"""Failures that do not reveal which eras a server supports."""

_log: Final = logging.getLogger("riglm.proxy")


NOTHING: Final[frozenset[str]] = frozenset()
"""One object for all empty sets: an empty set takes 216 bytes, and there may be very many idle clients."""


class Member:
    """Opens its link with the client's handshake, and keeps its lists in the common directory.

    What is known of the server from before counts until it replies, and is withdrawn if it cannot be reached. A server
    of the modern era needs no opening.
    """

    def __init__(self, upstreams: "Upstreams", upstream: UpstreamPort, link: UpstreamLink, *, is_open: bool) -> None:
        self.name = upstream.spec.name
        self.upstream = upstream
        self.link = link
        self.capabilities: dict[str, Raw] = {}
        self.instructions = ""
        self.is_open = is_open
        self.reason = "it has not been asked yet"
        """Why it is not open, or has no list."""
        self.waiting_since = 0.0
        """When it was asked for what it has not sent yet, by `time.monotonic`; 0 if nothing is owed."""
        self._upstreams = upstreams
        self._needs_opening = not is_open
        self._handshake = b""
        self._variant = ""
        self._unconfirmed: frozenset[str] = NOTHING
        """Lists that are known from before."""
        self._fresh_until: dict[str, float] = {}
        self._versions: dict[str, int] = {}
        """The link's `tools_version` when each list that is known was requested."""
        self._changed: frozenset[str] = NOTHING
        """Lists that changed while they were in flight."""
        self._opening: asyncio.Task[bool] | None = None
        self._fetching: dict[str, asyncio.Task[bool]] = {}
        self._failed_at = -math.inf
        self._is_listening = False
        self._replaced: UpstreamLink | None = None

    @property
    def is_known(self) -> bool:
        """Whether the server's capabilities are known, from its reply or from before."""
        return self.is_open or bool(self._unconfirmed)

    def open(self, handshake: bytes) -> asyncio.Task[bool]:
        """Start the handshake with the client's params; the result is whether it succeeded."""
        self._handshake = handshake
        capabilities = jsonrpc.members(handshake).get("capabilities", b"{}")
        self.recall(self._upstreams.parts.catalogs.variant_for(ProtocolEra.HANDSHAKE, bytes(capabilities)))
        return self.start_opening()

    def start_opening(self) -> asyncio.Task[bool]:
        """Open the link if it is not open, even right after a failure."""
        if self._opening is None:
            self.waiting_since = time.monotonic()
            self._opening = asyncio.get_running_loop().create_task(self._open())
        return self._opening

    async def ready(self) -> bool:
        """Whether the link is open, after an attempt to open it unless one has just failed."""
        if self.is_open:
            return True
        if self._opening is None and time.monotonic() - self._failed_at < _RETRY_SECONDS:
            return False
        return await asyncio.shield(self.start_opening())

    def has(self, capability: str) -> bool:
        """Whether the server declared a capability."""
        return capability in self.capabilities

    def is_fetching(self, method: str) -> bool:
        """Whether the list has been requested and is not there yet."""
        return method in self._fetching

    def is_unconfirmed(self, method: str) -> bool:
        """Whether the list is known from before only."""
        return method in self._unconfirmed

    def is_fresh(self, method: str) -> bool:
        """Whether the list is known and has not changed."""
        if time.monotonic() >= self._fresh_until.get(method, 0.0):
            return False
        if self._versions.get(method) != self.link.tools_version:
            return False
        return method != LIST or not self._upstreams.parts.pins.needs_comparison(self.link)

    def forget(self, methods: Sequence[str] = tuple(protocol.LIST_MEMBER)) -> None:
        """Lists changed, or may have: the server may have been restarted."""
        for method in methods:
            self._fresh_until.pop(method, None)
            if method in self._fetching:
                self._changed |= {method}

    def fetch(self, method: str, request: Request | None) -> asyncio.Task[bool]:
        """Request a list, for a request of a client if there is one; the result is whether it has changed."""
        running = self._fetching.get(method)
        if running is None:
            self.waiting_since = self.waiting_since or time.monotonic()
            running = self._fetching[method] = asyncio.get_running_loop().create_task(self._fetch(method, request))
            running.add_done_callback(lambda _: self._fetched(method))
        return running

    async def compare_tools(self, request: Request) -> None:
        """List the tools as they are now, and compare them with those that were approved."""
        await asyncio.shield(self.fetch(LIST, request))

    def review_page(self, page: Message, cursor: bytes, tools_version: int) -> tuple[Message, ToolCatalog]:
        """Return a page of the server's tools without what is held back, and its catalog."""
        parts = self._upstreams.parts
        page, result = parts.pins.review_page(self.link, tools_version, page, is_first=not cursor)
        return page, parts.listed.read(self.name, cursor, result)

    def listen(self, *, listening: bool) -> None:
        """Set whether the client has a stream open for server messages."""
        self._is_listening = listening
        if self.is_open or self._upstreams.only is self:
            self.link.listen(listening=listening)

    def recall(self, variant: str) -> None:
        """Take what is known of the server from before, for a client of this variant."""
        self._variant = variant
        known = self._upstreams.parts.catalogs.find(self.upstream.spec, variant)
        if known is None or not (known.capabilities if self._needs_opening else known.tools):
            return
        if self._needs_opening:
            self.capabilities = jsonrpc.members(known.capabilities)
            self.instructions = known.instructions
        for method, capability in CAPABILITY.items():
            if method == LIST or (self._needs_opening and not self.has(capability)):
                self._unconfirmed |= {method}
                entries = known.entries if method == LIST else ()
                self._upstreams.directory.learn(method, self.name, entries)

    async def cross(self, refusal: Message, failure: ErrorKind | None) -> bool:
        """Use a bridge if the server refused the handshake because it supports only the modern era."""
        if failure in _NO_REPLY or not refusal.error:
            return False
        if isinstance(self.link, BridgeLink):
            self.upstream.learned(ProtocolEra.HANDSHAKE, supported=True)  # it may have changed: the next client tries
            return False
        bridge = await find_bridge(self.upstream, self._upstreams, refusal)
        if bridge is None:
            return False
        self._replaced, self.link = self.link, bridge
        if self._is_listening:
            bridge.listen(listening=True)
        await self._replaced.close()
        self._replaced = None
        return True

    async def close(self) -> None:
        """Close the link."""
        tasks = [*self._fetching.values(), *([self._opening] if self._opening else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._replaced is not None:
            await self._replaced.close()
        if self._needs_opening:  # links of the modern era are closed with their upstream
            await self.link.close()

    async def _open(self) -> bool:
        if self.is_open:
            return True
        handshake, related = self._handshake or _own_handshake(), self._upstreams.handler_for(self.link)
        reply, failure = await ask(self.link, "initialize", handshake, related)
        if not reply.result and await self.cross(reply, failure):
            related = self._upstreams.handler_for(self.link)
            reply, failure = await ask(self.link, "initialize", handshake, related)
        self.waiting_since = 0.0
        if not reply.result:
            self._failed_at = time.monotonic()
            self._opening = None
            self._note_failure(reply)
            about = {"upstream": self.name, "reason": self.reason}
            _log.warning("left out a server that could not be opened", extra=about)
            self._withdraw()
            return False
        self.link.send(jsonrpc.notification("notifications/initialized"))
        self._take(jsonrpc.members(reply.result))
        return True

    def _take(self, opened: dict[str, Raw]) -> None:
        """The server is open: note what it declared."""
        self.capabilities = jsonrpc.members(opened.get("capabilities", b"{}"))
        self.instructions = jsonrpc.text(opened.get("instructions")) or ""
        self.is_open = True
        directory = self._upstreams.directory
        for method in [each for each in self._unconfirmed if directory.is_empty(each, self.name)]:
            if self.has(CAPABILITY[method]):  # it had no such list before
                self._unconfirmed -= {method}
                directory.forget(method, self.name)
        if self._is_listening:
            self.link.listen(listening=True)

    async def _fetch(self, method: str, request: Request | None) -> bool:
        if self._upstreams.only is None and not await self.ready():  # a client opens its only server itself
            return False
        is_optional = self._needs_opening and self._upstreams.only is None
        if is_optional and not self.has(CAPABILITY[method]):
            self._fresh_until[method] = math.inf
            return self._learn(method, (), self.link.tools_version)
        params = self._upstreams.era.own_params(request)
        related = self._upstreams.handler_for(self.link) if request is None else request.related_by(self.link)
        for _ in range(_MAX_TRIES):
            self._changed -= {method}
            version = self.link.tools_version
            pages, last = await list_pages(self.link, method, params, related)
            if method not in self._changed:
                break
        if jsonrpc.error_code(last) != jsonrpc.REQUEST_TIMEOUT:
            self.waiting_since = 0.0
        if jsonrpc.error_code(last) == jsonrpc.METHOD_NOT_FOUND:
            pages = []
        elif not last.result:
            self._note_failure(last)
            if method not in self._unconfirmed:
                return False
            about = {"upstream": self.name, "method": method, "reason": self.reason}
            _log.warning("left out a server whose list could not be had", extra=about)
            return self._withdraw(method)
        if method not in self._changed:
            self._fresh_until[method] = self._lifetime(method, last)
        if self._upstreams.only is not None:
            return self._learn(method, list_entries(method, pages), version)
        return self._learn(method, self._upstreams.directory.entries(method, self.name, pages), version)

    def _lifetime(self, method: str, page: Message) -> float:
        """Return until when a list that came just now is fresh, by `time.monotonic`."""
        if not self._needs_opening:
            return time.monotonic() + _ttl_seconds(page)
        capability = self.capabilities.get(CAPABILITY[method], Raw(b"{}"))
        is_announced = bytes(jsonrpc.members(capability).get("listChanged", b"")) == b"true"
        return math.inf if is_announced else 0.0  # a server that announces no changes is asked each time

    def _learn(self, method: str, entries: Sequence[Raw], tools_version: int) -> bool:
        """Store the complete list of the server. Returns True if it has changed."""
        upstreams, parts = self._upstreams, self._upstreams.parts
        self._unconfirmed -= {method}
        self._versions[method] = tools_version
        if method == LIST:
            entries = parts.pins.review(self.name, entries, compared=(self.link, tools_version))
            parts.listed.learn(self.name, entries)
            if upstreams.only is not None:
                return False
            greeting = (jsonrpc.join_object(self.capabilities), self.instructions) if self._needs_opening else None
            if self._variant:
                parts.catalogs.note(self.upstream.spec, self._variant, greeting=greeting, entries=entries)
        return upstreams.directory.learn(method, self.name, entries)

    def _withdraw(self, *methods: str) -> bool:
        """Remove lists that are known from before: the server cannot be reached. Returns True if it had any entry."""
        had_entries = False
        for method in methods or tuple(self._unconfirmed):
            self._unconfirmed -= {method}
            if self._upstreams.directory.forget(method, self.name):
                had_entries = True
                self._upstreams.list_changed(method)
        return had_entries

    def withdraw(self) -> None:
        """Remove what is known from before: the server takes no part any more."""
        self._withdraw()

    def _fetched(self, method: str) -> None:
        del self._fetching[method]
        self._changed -= {method}

    def _note_failure(self, reply: Message) -> None:
        self.reason = jsonrpc.text(jsonrpc.members(reply.error).get("message")) or "its answer was no result"


def _ttl_seconds(page: Message) -> float:
    ttl_ms = jsonrpc.plain(jsonrpc.members(page.result).get("ttlMs", b"0"))
    is_known = isinstance(ttl_ms, int | float) and ttl_ms > 0
    return float(min(ttl_ms / 1000 if ttl_ms < 1e12 else ttl_ms, MAX_TTL_SECONDS)) if is_known else 0.0


def _own_handshake() -> bytes:
    """Return the `initialize` params that riglm sends if a client requests before it has initialized."""
    version = protocol.HANDSHAKE_VERSIONS[-1]
    return jsonrpc.encode({"protocolVersion": version, "capabilities": {}, "clientInfo": server_info()})
