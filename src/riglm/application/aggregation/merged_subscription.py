"""One client's `subscriptions/listen` in front of several servers."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from riglm.application.aggregation.merged_lists import merged
from riglm.application.connections.single_server_modern import EraProbe
from riglm.application.forwarding.catalogs import KnownCatalogs
from riglm.application.forwarding.notifier import CHANGED, DebouncedNotifier
from riglm.application.forwarding.proxied_request import ProxiedRequest
from riglm.application.forwarding.riglm_requests import Asking
from riglm.domain import jsonrpc, protocol
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.protocol import ACKNOWLEDGED
from riglm.domain.session import ProtocolEra
from riglm.ports.upstream import UpstreamLink, UpstreamPort

INITIAL_BACKOFF: Final = 1.0
"""Initial backoff in seconds for a server that ended a subscription; it doubles with each failure."""

_MAX_BACKOFF: Final = 30.0
_LOST: Final = frozenset({None, jsonrpc.INTERNAL_ERROR})
_NOTES: Final = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}


class MergedSubscription:
    """Subscribes to all servers, and sends the client one acknowledgment of what all of them granted.

    A server that disconnects is subscribed again when it is back; what it grants may then differ.
    """

    def __init__(
        self,
        exchange: ProxiedRequest,
        links: Mapping[str, UpstreamLink],
        asking: Asking,
        *,
        params: Callable[[str], bytes],
        on_change: Callable[[str, tuple[str, ...]], None],
    ) -> None:
        """`params` are the params for a server; `on_change` gets a server and the methods of lists that changed."""
        self._exchange = exchange
        self._links = links
        self._asking = asking
        self._params = params
        self._on_change = on_change
        self._announcer = DebouncedNotifier(self._pass_on)
        self._granted: dict[str, dict[str, Any]] = {}
        self._undecided = set(links)
        self._decided = asyncio.Event()
        self._acknowledged = False
        asked = jsonrpc.members(jsonrpc.members(exchange.message.params).get("notifications", b"{}"))
        self._wanted = {name: note for name, note in _NOTES.items() if bytes(asked.get(name, b"")) == b"true"}

    async def run(self, grace: float) -> None:
        """Subscribe until every server has refused; the first acknowledgment waits for at most the grace, in seconds.

        The end is the answer of the server that refused last.
        """
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._listen(server, link)) for server, link in self._links.items()]
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._decided.wait(), grace)
            if self._granted or self._undecided:
                self._acknowledged = True
                whole: dict[str, Any] = dict.fromkeys(self._wanted, True)
                for granted in self._granted.values():
                    whole = merged(whole, granted)
                self._pass_on(jsonrpc.notification(ACKNOWLEDGED, jsonrpc.encode({"notifications": whole})))
            answers = [await task for task in tasks]
            self._exchange.replied(answers[-1].replace(id=self._exchange.message.id or b"null"))
        finally:
            self._announcer.close()
            for task in tasks:
                task.cancel()

    def announce(self, note: str) -> None:
        """Send a list-changed notification of riglm itself, if the client listens for it."""
        if self._acknowledged and note in self._wanted.values():
            self._announcer.announce(note)

    async def _listen(self, server: str, link: UpstreamLink) -> Message:
        """Listen to one server again and again, until it refuses; the refusal."""
        delay = INITIAL_BACKOFF
        while True:
            answer, failure = await self._asking.put(
                link, "subscriptions/listen", self._params(server), partial(self._told, server)
            )
            lost = failure in (ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT) or jsonrpc.error_code(answer) in _LOST
            self._decide(server)
            if not lost:
                return answer
            await asyncio.sleep(delay)
            delay = min(_MAX_BACKOFF, 2 * delay)

    def _told(self, server: str, message: Message) -> None:
        if message.method == ACKNOWLEDGED:
            granted = jsonrpc.plain(jsonrpc.members(message.params).get("notifications", b"{}"))
            again = server in self._granted or self._acknowledged
            self._granted[server] = granted if isinstance(granted, dict) else {}
            self._decide(server)
            if again:
                self._catch_up(server)
        elif message.method in CHANGED:
            self._on_change(server, CHANGED[message.method])
            self._announcer.announce(message.method)
        else:
            self._pass_on(message)

    def _catch_up(self, server: str) -> None:
        """Notify the client of all lists, because changes may have been missed without a subscription."""
        for name, note in _NOTES.items():
            if self._granted[server].get(name):
                self._on_change(server, CHANGED[note])
                self._announcer.announce(note)
        uris = self._granted[server].get("resourceSubscriptions")
        for uri in uris if isinstance(uris, list) else []:
            self._pass_on(jsonrpc.notification("notifications/resources/updated", jsonrpc.encode({"uri": uri})))

    def _decide(self, server: str) -> None:
        self._undecided.discard(server)
        if not self._undecided:
            self._decided.set()

    def _pass_on(self, message: Message) -> None:
        """A notification under the subscription that the client knows."""
        path = ("_meta", protocol.META_SUBSCRIPTION)
        params = jsonrpc.with_member(message.params or b"{}", path, self._exchange.message.id or b"null")
        self._exchange.related(message.replace(params=params))


RETRY_SECONDS: Final = 5.0
"""Seconds to wait before a server that could not be reached is asked again."""

_log = logging.getLogger("riglm.proxy")


class EraNegotiation:
    """The modern era takes all servers, the handshake any mix of them.

    If a server supports only the handshake era, or has not answered yet, clients that probe for the era get the
    handshake. Unreachable servers do not count. A result is final: a server that proves to lack the modern era later is
    left out. Clients that use the modern era without probing are served by the servers that answer.
    """

    def __init__(
        self,
        upstreams: Mapping[str, UpstreamPort],
        links: Mapping[str, UpstreamLink],
        grace: float,
        catalogs: KnownCatalogs,
    ) -> None:
        """No server is asked yet. Requests wait for the answers for `grace` seconds from the question on.

        Servers with a known catalog of the era are expected to support it still, and are not waited for.
        """
        self._upstreams = upstreams
        self._links = links
        self._grace = grace
        self._catalogs = catalogs
        self._probes = {name: EraProbe(up, links[name], silence_tells=False) for name, up in upstreams.items()}
        self._silent: set[str] = set()
        self._all_answered = asyncio.Event()
        self._asked_at: dict[str, float] = {}
        self._granted = False
        self._left_out: set[str] = set()

    @property
    def is_granted(self) -> bool:
        """Treat the modern era as served from now on, so that no request waits for probes."""
        return self._granted

    async def reached(self, *, asked_for: bool) -> bool:
        """Whether a request of the modern era is served; `asked_for`: it is a `server/discover`."""
        self._ask()
        left = self._grace_left()
        if left > 0.0 and not self._granted:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_answered.wait(), left)
        if self._granted:
            return True
        verdicts = [self._supports(name) for name in self._upstreams]
        possible = any(verdicts) and all(verdict is not False for verdict in verdicts)
        self._granted = possible and not self._silent
        return self._granted or (possible and not asked_for)

    def links(self) -> dict[str, UpstreamLink]:
        """The links to the servers that take part."""
        taking_part = {}
        for name, upstream in self._upstreams.items():
            if upstream.supports(ProtocolEra.MODERN) is not False:
                taking_part[name] = self._links[name]
            elif name not in self._left_out:
                self._left_out.add(name)
                _log.warning("left out a server that only knows the handshake", extra={"upstream": name})
        return taking_part

    def _supports(self, name: str) -> bool | None:
        told = self._upstreams[name].supports(ProtocolEra.MODERN)
        return True if told is None and self._is_expected(name) else told

    def _is_expected(self, name: str) -> bool:
        """Whether a server supported the era before."""
        variant = self._catalogs.variant_for(ProtocolEra.MODERN)
        return self._catalogs.find(self._upstreams[name].spec, variant) is not None

    def _grace_left(self) -> float:
        """For how many seconds more the silent are waited for; who is late is not, until it answers."""
        asked_at = max((self._asked_at[name] for name in self._silent), default=-math.inf)
        return asked_at + self._grace - time.monotonic()

    def _ask(self) -> None:
        now = time.monotonic()
        for name, upstream in self._upstreams.items():
            asked_at = self._asked_at.get(name)
            due = asked_at is None or asked_at + RETRY_SECONDS < now
            if upstream.supports(ProtocolEra.MODERN) is None and name not in self._silent and due:
                if asked_at is None and not self._is_expected(name):
                    self._silent.add(name)
                    self._all_answered.clear()
                self._asked_at[name] = now
                self._probes[name].ask(partial(self._answered, name))

    def _answered(self, name: str, _: bool | None) -> None:
        self._silent.discard(name)
        if not self._silent:
            self._all_answered.set()
