"""One of several upstreams, as one client connection of the handshake era sees it."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from riglm.application.aggregation.merged_lists import OwnershipTable
from riglm.application.connections.bridge import BridgeLink, find_bridge, link_for
from riglm.application.forwarding.catalogs import KnownCatalogs
from riglm.application.forwarding.riglm_requests import Asking
from riglm.application.owners import server_info
from riglm.domain import jsonrpc, protocol
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.session import ProtocolEra
from riglm.ports.downstream import ConnectionHandoff
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamPort

_log = logging.getLogger("riglm.proxy")
_RETRY_SECONDS: Final = 5.0
_MAX_TRIES: Final = 2

CAPABILITY: Final = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "prompts/list": "prompts",
}
"""Capabilities by list method."""


class UpstreamSession:
    """Opens its link with the client's handshake, and fetches its lists into the common directory.

    What is known of the server from before counts until it answers, and is withdrawn if it cannot be asked.
    """

    def __init__(
        self,
        upstream: UpstreamPort,
        message_handler: ServerMessageHandler,
        asking: Asking,
        directory: OwnershipTable,
        catalogs: KnownCatalogs,
        on_change: Callable[[str], None],
        principal: str,
    ) -> None:
        """A member that is not opened yet; server messages go to `message_handler`, withdrawn lists to `on_change`."""
        self._upstream = upstream
        self._message_handler = message_handler
        self.link: UpstreamLink = link_for(upstream, message_handler, principal)
        self.name = upstream.spec.name
        self.capabilities: dict[str, Raw] = {}
        self.instructions = ""
        self.is_open = False
        self.reason = "it has not been asked yet"
        """Why it is not open, or has no list."""
        self._catalogs = catalogs
        self._on_change = on_change
        self._variant = ""
        self._unconfirmed: set[str] = set()
        """Lists that are known from before."""
        self._asking = asking
        self._directory = directory
        self._opening: asyncio.Task[bool] | None = None
        self._fetching: dict[str, asyncio.Task[bool]] = {}
        self._listed_at: dict[str, float] = {}
        """When each list that is being fetched was asked for."""
        self._refused: UpstreamLink | None = None
        self._stale: set[str] = set(protocol.LIST_MEMBER)
        self._tools_version = 0
        """The link's when the tools that are known were asked for."""
        self._failed_at = -math.inf
        self._asked_at = 0.0
        self._handshake = b""
        self._listening = False

    def open(self, handshake: bytes) -> asyncio.Task[bool]:
        """Start the handshake with the client's own params; whether it succeeded."""
        self._handshake = handshake
        self._recall()
        return self.start_opening()

    def start_opening(self) -> asyncio.Task[bool]:
        """Open the link if it is not open, even right after a failure; whether it is open then."""
        if self._opening is None:
            self._asked_at = time.monotonic()
            self._opening = asyncio.get_running_loop().create_task(self._open())
        return self._opening

    async def ready(self) -> bool:
        """Whether the link is open, after an attempt to open it unless one has just failed."""
        if self.is_open:
            return True
        if self._opening is None and time.monotonic() - self._failed_at < _RETRY_SECONDS:
            return False
        return await asyncio.shield(self.start_opening())

    @property
    def is_known(self) -> bool:
        """Whether the server's capabilities are known, from its answer or from before."""
        return self.is_open or bool(self._unconfirmed)

    def time_left(self, method: str, timeout: float) -> float:
        """Return the seconds left of a timeout that began when the server was asked to open, or for its list.

        There are none for a list that is known from before.
        """
        if method in self._unconfirmed:
            return 0.0
        asked_at = self._listed_at.get(method, 0.0) if self.is_open else self._asked_at
        return max(0.0, asked_at + timeout - time.monotonic()) if asked_at else timeout

    def is_fetching(self, method: str) -> bool:
        """Whether the list has been asked for and is not there yet."""
        return method in self._fetching

    def has(self, capability: str) -> bool:
        """Whether the server declared a capability."""
        return capability in self.capabilities

    def forget(self, method: str) -> None:
        """A list changed, or may have."""
        self._stale.add(method)

    def forget_all(self) -> None:
        """Initialize again: the server may have been restarted."""
        self._stale.update(protocol.LIST_MEMBER)

    def is_fresh(self, method: str) -> bool:
        """Whether the list is known and has not changed."""
        if method in self._stale or method != "tools/list":
            return method not in self._stale
        is_compared = not self._catalogs.pins.needs_comparison(self.link)
        return is_compared and self._tools_version == self.link.tools_version

    def fetch(self, method: str) -> asyncio.Task[bool]:
        """Refresh a list, and open the link first if necessary. Returns True if the list has changed."""
        running = self._fetching.get(method)
        if running is None:
            running = self._fetching[method] = asyncio.get_running_loop().create_task(self._fetch(method))
            running.add_done_callback(lambda _: self._fetched(method))
            self._listed_at[method] = time.monotonic()
        return running

    def listen(self, *, listening: bool) -> None:
        """Pause or resume server messages (backpressure while the client does not read)."""
        self._listening = listening
        if self.is_open:
            self.link.listen(listening=listening)

    @property
    def ticket(self) -> bytes:
        """What another process needs to go on with the session that the server gave; empty when it cannot."""
        ticket = self.link.ticket if self.is_open else b""
        if not ticket:
            return b""
        said = {
            "ticket": jsonrpc.encode(ticket.decode("latin-1")),
            "capabilities": jsonrpc.join_object(self.capabilities),
            "instructions": jsonrpc.encode(self.instructions),
        }
        return jsonrpc.join_object(said)

    def adopt(self, handoff: ConnectionHandoff) -> bool:
        """Go on with a session that the server gave to another process; whether that is possible."""
        said = jsonrpc.members(handoff.tickets.get(self.name, b"{}"))
        ticket = (jsonrpc.text(said.get("ticket")) or "").encode("latin-1", "replace")
        self._handshake = bytes(handoff.handshake.params) or b"{}"
        if not self.link.adopt(ticket, handoff.handshake, handoff.state_requests):
            return False
        if not self.is_open:
            self._take(said)
        return True

    async def close(self) -> None:
        """End the link."""
        tasks = [*self._fetching.values(), *([self._opening] if self._opening else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._refused is not None:
            await self._refused.close()
        await self.link.close()

    def _take(self, said: Mapping[str, Raw]) -> None:
        """The server is open; what it said of itself."""
        self.capabilities = jsonrpc.members(said.get("capabilities", b"{}"))
        self.instructions = jsonrpc.text(said.get("instructions")) or ""
        self.is_open = True
        for method in [each for each in self._unconfirmed if self._directory.is_empty(each, self.name)]:
            if self.has(CAPABILITY[method]):  # it had no such list before
                self._unconfirmed.discard(method)
                self._directory.forget(method, self.name)
        if self._listening:
            self.link.listen(listening=True)

    async def _open(self) -> bool:
        if self.is_open:
            return True
        handshake = self._handshake or _own_handshake()
        answer, failure = await self._asking.put(self.link, "initialize", handshake)
        if answer.error and failure is None and await self._crossed(answer):
            answer = await self._asking.ask(self.link, "initialize", handshake)
        if not answer.result:
            self._failed_at, self._asked_at = time.monotonic(), 0.0
            self._opening = None
            self._note_failure(answer)
            about = {"upstream": self.name, "reason": self.reason}
            _log.warning("left out a server that could not be opened", extra=about)
            self._withdraw()
            return False
        self.link.send(jsonrpc.notification("notifications/initialized"))
        self._take(jsonrpc.members(answer.result))
        return True

    def _recall(self) -> None:
        """Take what is known of the server from before, for a client with these capabilities."""
        capabilities = jsonrpc.members(self._handshake).get("capabilities", b"{}")
        self._variant = self._catalogs.variant_for(ProtocolEra.HANDSHAKE, bytes(capabilities))
        known = self._catalogs.find(self._upstream.spec, self._variant)
        if known is None or not known.capabilities:
            return
        self.capabilities = jsonrpc.members(known.capabilities)
        self.instructions = known.instructions
        for method, capability in CAPABILITY.items():
            if method == "tools/list" or not self.has(capability):
                self._unconfirmed.add(method)
                self._directory.learn(method, self.name, known.entries if method == "tools/list" else ())

    def _withdraw(self) -> None:
        """Remove what was known from before: the server cannot be asked."""
        for method in self._unconfirmed:
            if self._directory.forget(method, self.name):
                self._on_change(method)
        self._unconfirmed.clear()

    def _learn(self, method: str, entries: Sequence[Raw], tools_version: int) -> bool:
        """Store the complete list of the server. Returns True if it has changed."""
        self._unconfirmed.discard(method)
        if method == "tools/list":
            entries = self._catalogs.pins.review(self.name, entries, compared=(self.link, tools_version))
            self._tools_version = tools_version
        if method == "tools/list" and self._variant:
            greeting = bytes(jsonrpc.join_object(self.capabilities)), self.instructions
            self._catalogs.note(self._upstream.spec, self._variant, greeting=greeting, entries=entries)
        return self._directory.learn(method, self.name, entries)

    async def _crossed(self, refusal: Message) -> bool:
        """Use a bridge if the server refused the handshake because it supports only the modern era."""
        if isinstance(self.link, BridgeLink):
            return False
        decided: asyncio.Future[BridgeLink | None] = asyncio.get_running_loop().create_future()

        def found(bridge: BridgeLink | None) -> None:
            if not decided.done():
                decided.set_result(bridge)

        find_bridge(self._upstream, self._message_handler, refusal, found)
        bridge = await decided
        if bridge is None:
            return False
        self._refused, self.link = self.link, bridge
        await self._refused.close()
        self._refused = None
        return True

    async def _fetch(self, method: str) -> bool:
        if not await self.ready():
            return False
        capability = CAPABILITY[method]
        if not self.has(capability):
            self._stale.discard(method)
            return self._learn(method, (), self.link.tools_version)
        for _ in range(_MAX_TRIES):
            self._stale.discard(method)
            version = self.link.tools_version
            entries, answer = await self._asking.pages(self.link, method, protocol.LIST_MEMBER[method], b"{}")
            if jsonrpc.error_code(answer) == jsonrpc.METHOD_NOT_FOUND:
                return self._learn(method, (), version)
            if not answer.result:
                self._stale.add(method)
                self._note_failure(answer)
                if method in self._unconfirmed:
                    about = {"upstream": self.name, "method": method, "reason": self.reason}
                    _log.warning("left out a server whose list could not be had", extra=about)
                    self._withdraw()
                return False
            if method not in self._stale:  # else it changed while it was on its way
                break
        if not self._announces(capability):
            self._stale.add(method)
        return self._learn(method, entries, version)

    def _fetched(self, method: str) -> None:
        del self._fetching[method], self._listed_at[method]

    def _announces(self, capability: str) -> bool:
        """Whether the server says when its list changes; one that does not is asked each time."""
        return bytes(jsonrpc.members(self.capabilities[capability]).get("listChanged", b"")) == b"true"

    def _note_failure(self, answer: Message) -> None:
        self.reason = jsonrpc.text(jsonrpc.members(answer.error).get("message")) or "its answer was no result"


def _own_handshake() -> bytes:
    """The `initialize` params that riglm sends if a client requests before it has initialized."""
    version = protocol.HANDSHAKE_VERSIONS[-1]
    return jsonrpc.encode({"protocolVersion": version, "capabilities": {}, "clientInfo": server_info()})
