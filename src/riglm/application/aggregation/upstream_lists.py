"""Lists of modern servers, cached for as long as each server permits."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import Final

from riglm.application.aggregation.merged_lists import MergedList, OwnershipTable, wait_for_each
from riglm.application.forwarding.catalogs import KnownCatalogs
from riglm.application.forwarding.riglm_requests import Asking
from riglm.domain import jsonrpc, protocol
from riglm.domain.jsonrpc import Message
from riglm.domain.session import ProtocolEra
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import UpstreamLink

MAX_TTL_SECONDS: Final = 86_400.0
"""Maximum time in seconds that a list is cached, regardless of the server's `ttlMs`."""

_MAX_TRIES: Final = 2
_log: Final = logging.getLogger("riglm.proxy")

ListKey = tuple[str, str]
"""A list's method and its server."""


class UpstreamListCache:
    """Asks for the lists whose time is over, all servers at once, and waits for them as long as the client does.

    The timeout of a server counts from when it was first asked without an answer. What comes after an answer without it
    is announced.
    """

    def __init__(
        self,
        links: Callable[[], Mapping[str, UpstreamLink]],
        asking: Asking,
        directory: OwnershipTable,
        catalogs: KnownCatalogs,
        specs: Iterable[UpstreamSpec],
        on_change: Callable[[str], None],
    ) -> None:
        """`links` gives those of the servers that take part; `on_change` gets the method of a list that changed."""
        self._catalogs = catalogs
        self._specs = {spec.name: spec for spec in specs}
        self._unconfirmed: set[ListKey] = set()
        """Lists that are known from before."""
        for name, spec in self._specs.items():
            known = catalogs.find(spec, catalogs.variant_for(ProtocolEra.MODERN))
            if known is not None and known.tools:
                directory.learn("tools/list", name, known.entries)
                self._unconfirmed.add(("tools/list", name))
        self._links = links
        self._asking = asking
        self._directory = directory
        self._on_change = on_change
        self._fresh_until: dict[ListKey, float] = {}
        self._versions: dict[ListKey, int] = {}
        """The `tools_version` of its link when each list that is known was asked for."""
        self._asked_at: dict[str, float] = {}
        """When each server that gave no answer since was first asked."""
        self._sent_without: set[ListKey] = set()
        """Lists that are being fetched, and that an answer did not wait for."""
        self._fetching: dict[ListKey, asyncio.Task[bool]] = {}
        self._changed: set[ListKey] = set()

    async def joined(self, method: str, asked: Message, list_timeout: float, longest_wait: float) -> MergedList | None:
        """The servers' lists as one; None when no server's list could be had.

        It waits for as long as `UpstreamGroup.joined`.
        """
        await self.refresh((method,), asked, list_timeout)
        links = self._links()
        for key in [each for each in self._unconfirmed if each[1] not in links]:
            self._withdraw(key)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_wait - list_timeout):
                while (running := self._running(method)) and not self._directory.knows_any(method):
                    await asyncio.wait(running.values(), return_when=asyncio.FIRST_COMPLETED)
        self._sent_without.update(self._running(method))
        is_known = self._directory.knows_any(method) or (method == "tools/list" and self.missing())
        return self._directory.joined(method) if is_known else None

    def missing(self) -> tuple[str, ...]:
        """Return the names of the servers whose tools are still awaited and not known from before."""
        awaited = [server for _, server in self._running("tools/list") if server in self._links()]
        return tuple(server for server in awaited if not self._directory.knows("tools/list", server))

    async def refresh(
        self, methods: Iterable[str], asked: Message, list_timeout: float, servers: Container[str] | None = None
    ) -> None:
        """Bring the lists of all servers, or of some, up to date; `asked` has the envelope to ask with."""
        meta = bytes(jsonrpc.members(asked.params).get("_meta", b"{}"))
        links = self._links()
        wanted = [server for server in links if servers is None or server in servers]
        keys = [(method, server) for method in methods for server in wanted]
        now = time.monotonic()
        for key in keys:
            if not self._is_fresh(key, links[key[1]], now) and key not in self._fetching:
                self._asked_at.setdefault(key[1], now)
                task = asyncio.get_running_loop().create_task(self._fetch(key, links[key[1]], meta))
                self._fetching[key] = task
                task.add_done_callback(partial(self._fetched, key))
        awaited = [key for key in keys if key in self._fetching and key not in self._unconfirmed]
        timeouts = {self._fetching[key]: self._asked_at.get(key[1], now) + list_timeout - now for key in awaited}
        await wait_for_each(timeouts)

    def forget(self, server: str, methods: Iterable[str]) -> None:
        """Lists of a server changed, or may have."""
        for method in methods:
            self._fresh_until.pop((method, server), None)
            if (method, server) in self._fetching:
                self._changed.add((method, server))

    async def close(self) -> None:
        """Ask for nothing more."""
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_fresh(self, key: ListKey, link: UpstreamLink, now: float) -> bool:
        is_unchanged = self._fresh_until.get(key, 0.0) > now and self._versions.get(key) == link.tools_version
        return is_unchanged and not (key[0] == "tools/list" and self._catalogs.pins.needs_comparison(link))

    def _running(self, method: str) -> dict[ListKey, asyncio.Task[bool]]:
        return {key: task for key, task in self._fetching.items() if key[0] == method}

    async def _fetch(self, key: ListKey, link: UpstreamLink, meta: bytes) -> bool:
        """Request a list. Returns True if it has changed."""
        method, server = key
        for _ in range(_MAX_TRIES):
            self._changed.discard(key)
            params = b'{"_meta":%b}' % meta
            version = link.tools_version
            entries, answer = await self._asking.pages(link, method, protocol.LIST_MEMBER[method], params)
            if key not in self._changed:
                break
        if jsonrpc.error_code(answer) != jsonrpc.REQUEST_TIMEOUT:
            self._asked_at.pop(server, None)
        if answer.result:
            if key not in self._changed:
                self._fresh_until[key] = time.monotonic() + _ttl_seconds(answer)
        elif jsonrpc.error_code(answer) == jsonrpc.METHOD_NOT_FOUND:
            entries = []
        else:
            return key in self._unconfirmed and self._withdraw(key)
        self._versions[key] = version
        self._unconfirmed.discard(key)
        if method == "tools/list":
            entries = list(self._catalogs.pins.review(server, entries, compared=(link, version)))
            self._catalogs.note(self._specs[server], self._catalogs.variant_for(ProtocolEra.MODERN), entries=entries)
        return self._directory.learn(method, server, entries)

    def _withdraw(self, key: ListKey) -> bool:
        """Remove a list that was known from before: the server cannot be asked. Whether there was anything in it."""
        self._unconfirmed.discard(key)
        _log.warning("left out a server whose list could not be had", extra={"upstream": key[1], "method": key[0]})
        return self._directory.forget(*key)

    def _fetched(self, key: ListKey, task: "asyncio.Task[bool]") -> None:
        del self._fetching[key]
        self._changed.discard(key)
        was_sent_without = key in self._sent_without
        self._sent_without.discard(key)
        if was_sent_without and not task.cancelled() and task.result():
            self._on_change(key[0])


def _ttl_seconds(answer: Message) -> float:
    ttl_ms = jsonrpc.plain(jsonrpc.members(answer.result).get("ttlMs", b"0"))
    known = isinstance(ttl_ms, int | float) and ttl_ms > 0
    return float(min(ttl_ms / 1000 if ttl_ms < 1e12 else ttl_ms, MAX_TTL_SECONDS)) if known else 0.0
