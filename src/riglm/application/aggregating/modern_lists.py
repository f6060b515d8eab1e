"""The lists of several servers of the modern era, kept for as long as each server says that they may be."""

import asyncio
import time
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import Final

from riglm.application.aggregating.directory import Directory
from riglm.application.aggregating.listings import JoinedList
from riglm.application.forwarding.asking import Asking
from riglm.domain import jsonrpc, protocol
from riglm.domain.jsonrpc import Message
from riglm.ports.upstream import UpstreamLink

LONGEST_TTL_SECONDS: Final = 86_400.0
"""No list is kept for longer without asking, whatever its server says."""

_MOST_TRIES: Final = 2

Key = tuple[str, str]
"""A list's method and its server."""


class ModernLists:
    """Asks for the lists whose time is over, all servers at once, and waits no longer than a grace.

    What comes later still counts for the next time. For a server that was late nobody waits until it gave a list.
    """

    def __init__(
        self, links: Callable[[], Mapping[str, UpstreamLink]], asking: Asking, directory: Directory, grace: float
    ) -> None:
        """`links` gives those of the servers that take part; `grace` is in seconds."""
        self._links = links
        self._asking = asking
        self._directory = directory
        self._grace = grace
        self._fresh_until: dict[Key, float] = {}
        self._late: set[str] = set()
        self._fetching: dict[Key, asyncio.Task[None]] = {}
        self._changed: set[Key] = set()

    async def joined(self, method: str, asked: Message) -> JoinedList | None:
        """The servers' lists as one; None when no server's list could be had.

        As long as nothing is known at all, everybody waits: an empty list would be taken for the truth.
        """
        await self.refresh((method,), asked)
        running = {task for (of, _), task in self._fetching.items() if of == method}
        while running and not self._directory.knows_any(method):
            _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        return self._directory.joined(method) if self._directory.knows_any(method) else None

    async def refresh(self, methods: Iterable[str], asked: Message, servers: Container[str] | None = None) -> None:
        """Bring the lists of all servers, or of some, up to date; `asked` has the envelope to ask with."""
        meta = bytes(jsonrpc.members(asked.params).get("_meta", b"{}"))
        links = self._links()
        wanted = [server for server in links if servers is None or server in servers]
        keys = [(method, server) for method in methods for server in wanted]
        now = time.monotonic()
        for key in keys:
            if self._fresh_until.get(key, 0.0) <= now and key not in self._fetching:
                task = asyncio.get_running_loop().create_task(self._fetch(key, links[key[1]], meta))
                self._fetching[key] = task
                task.add_done_callback(partial(self._fetched, key))
        await self._wait([key for key in keys if key in self._fetching and key[1] not in self._late])

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

    async def _wait(self, keys: list[Key]) -> None:
        waited_for = {key: self._fetching[key] for key in keys}
        if waited_for:
            await asyncio.wait(waited_for.values(), timeout=self._grace)
        for (_, server), task in waited_for.items():
            if not task.done():
                self._late.add(server)

    async def _fetch(self, key: Key, link: UpstreamLink, meta: bytes) -> None:
        method, server = key
        for _ in range(_MOST_TRIES):
            self._changed.discard(key)
            params = b'{"_meta":%b}' % meta
            entries, answer = await self._asking.pages(link, method, protocol.LIST_MEMBER[method], params)
            if key not in self._changed:
                break
        if answer.result:
            self._late.discard(server)
            self._directory.learn(method, server, entries)
            if key not in self._changed:
                self._fresh_until[key] = time.monotonic() + _ttl_seconds(answer)
        elif jsonrpc.error_code(answer) == jsonrpc.METHOD_NOT_FOUND:
            self._late.discard(server)
            self._directory.learn(method, server, ())

    def _fetched(self, key: Key, task: "asyncio.Task[None]") -> None:
        self._fetching.pop(key, None)
        self._changed.discard(key)


def _ttl_seconds(answer: Message) -> float:
    ttl_ms = jsonrpc.plain(jsonrpc.members(answer.result).get("ttlMs", b"0"))
    known = isinstance(ttl_ms, int | float) and ttl_ms > 0
    return float(min(ttl_ms / 1000 if ttl_ms < 1e12 else ttl_ms, LONGEST_TTL_SECONDS)) if known else 0.0
