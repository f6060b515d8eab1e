"""The last list of tools that each upstream gave."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from riglm.application.failing_open import FailingOpen
from riglm.application.forwarding.riglm_requests import Asking
from riglm.application.trust import PinnedTools
from riglm.domain import jsonrpc
from riglm.domain.hashing import KEY_BYTES, KeyedHasher
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.session import ProtocolEra
from riglm.domain.tool import MAX_CATALOG_BYTES, StoredToolCatalog, Tool, ToolCatalog, read_catalog
from riglm.domain.upstream import AccountKey, UpstreamSpec
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink

MAX_PAGES: Final = 1000
"""Pages of one upstream's list beyond this many are passed on and not remembered."""

_EMPTY: Final = ToolCatalog()


def cursor_of(asked: Message) -> bytes:
    """The raw cursor of a `tools/list` request, empty when it asks for the first page."""
    return bytes(jsonrpc.members(asked.params).get("cursor", b"")) if b'"cursor"' in asked.line else b""


class CatalogCache:
    """Remembers lists, so that one that did not change is not read again."""

    def __init__(self) -> None:
        self._pages: dict[str, dict[bytes, ToolCatalog]] = {}
        self._whole: dict[str, ToolCatalog] = {}

    def read(self, upstream: str, asked: Message, result: bytes) -> ToolCatalog:
        """The page that `result` holds, an answer of `upstream` to the `tools/list` request `asked`."""
        cursor = cursor_of(asked)
        pages = self._pages.setdefault(upstream, {})
        last = pages.get(cursor)
        if last is not None and last.raw == result:
            return last
        page = read_catalog(result)
        if not cursor:
            pages.clear()
        if len(pages) < MAX_PAGES or cursor in pages:
            pages[cursor] = page
            self._whole.pop(upstream, None)
        return page

    def of(self, upstream: str) -> ToolCatalog:
        """All tools that `upstream` has listed so far."""
        whole = self._whole.get(upstream)
        if whole is None:
            whole = self._whole[upstream] = _joined(list(self._pages.get(upstream, {}).values()))
        return whole

    def lacks(self, upstream: str, tool: str) -> bool:
        """Whether `upstream` listed no such tool, and no part of its list is unknown."""
        return tool not in self.of(upstream).name_set and self._is_complete(upstream)

    def counts(self) -> dict[str, int]:
        """How many tools each upstream has listed, of those that listed any or none."""
        return {upstream: len(self.of(upstream).names) for upstream in self._pages}

    def input_schema(self, upstream: str, tool: str) -> Raw | None:
        """The raw `inputSchema` of a listed tool."""
        return self.of(upstream).input_schema(tool)

    def _is_complete(self, upstream: str) -> bool:
        pages = self._pages.get(upstream, {})
        page = pages.get(b"")
        for _ in pages:  # a cursor may lead back to where it came from
            if page is None or not page.next_cursor:
                break
            page = pages.get(page.next_cursor)
        return page is not None and not page.next_cursor


class ListedTools:
    """The names that one client was shown, page by page: what others were shown does not count."""

    __slots__ = ("_first", "_further")

    def __init__(self) -> None:
        self._first: frozenset[str] | None = None
        self._further: dict[bytes, frozenset[str]] | None = None
        """The pages after the first one, by cursor; None when there are none, as with most servers."""

    def note(self, asked: Message, page: ToolCatalog) -> None:
        """The client got a page as the answer to `asked`; the first page begins a new list."""
        cursor = cursor_of(asked)
        if not cursor:
            self._first, self._further = page.name_set, None
            return
        further = self._further = self._further or {}
        if len(further) + (self._first is not None) < MAX_PAGES:
            further[cursor] = page.name_set

    def __contains__(self, tool: str | None) -> bool:
        if self._first is not None and tool in self._first:
            return True
        return self._further is not None and any(tool in names for names in self._further.values())


def _joined(pages: list[ToolCatalog]) -> ToolCatalog:
    if len(pages) <= 1:
        return pages[0] if pages else _EMPTY
    tools: dict[str, Tool] = {}
    for page in pages:
        tools |= {name: page.by_name[name] for name in page.names}
    return ToolCatalog(tuple(tools.values()))


REFRESH_SECONDS: Final = 86_400.0
"""Seconds after which an unchanged catalog is recorded again, so that the store does not take it for unused."""

MAX_CATALOGS: Final = 256
"""Maximum number of catalogs in memory. The oldest are removed first."""

_log: Final = logging.getLogger("riglm.proxy")


class KnownCatalogs:
    """Keeps the latest catalogs of each server, and records those that changed."""

    def __init__(
        self,
        hasher: KeyedHasher | None = None,
        put: Callable[[StoredToolCatalog, int], None] = lambda *_: None,
        *,
        pins: PinnedTools | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`put` records a catalog and its size in bytes without blocking. By default catalogs stay in this process."""
        self.pins: Final = pins or PinnedTools({})
        """With which the lists are compared before they are noted."""
        self._hasher = hasher or KeyedHasher(os.urandom(KEY_BYTES))
        self._put = put
        self._clock = clock
        self._known: dict[tuple[str, str], StoredToolCatalog] = {}
        self._fingerprints: dict[AccountKey, tuple[UpstreamSpec, str]] = {}
        self._comparing: set[asyncio.Task[None]] = set()
        self._guarded = FailingOpen(_log, "tool catalogs could not be kept; lists wait for their servers, and")

    def load(self, specs: Sequence[UpstreamSpec], read: Callable[[Sequence[str]], Sequence[StoredToolCatalog]]) -> None:
        """Take the stored catalogs of these servers. Blocks, and may be called on another thread."""
        with self._guarded:
            for catalog in read([self._fingerprint(spec) for spec in specs]):
                self._known.setdefault((catalog.fingerprint, catalog.variant), catalog)

    def variant_for(self, era: ProtocolEra, capabilities: bytes = b"") -> str:
        """Return the variant of a catalog that a client with these raw capabilities is given."""
        return f"{era.value}:{self._hasher.catalog(capabilities)}" if capabilities else era.value

    def find(self, spec: UpstreamSpec, variant: str) -> StoredToolCatalog | None:
        """Return the latest catalog of a server, None if nothing is known of it."""
        return self._known.get((self._fingerprint(spec), variant))

    def definition(self, server: str, tool: str) -> Raw | None:
        """Return the raw definition of a tool by the server's name for it, from the latest catalog that has it."""
        entries = (raw for known in reversed(self._known.values()) if known.server == server for raw in known.entries)
        return next((raw for raw in entries if jsonrpc.text(jsonrpc.members(raw).get("name")) == tool), None)

    def compare_first(
        self,
        link: UpstreamLink,
        params: bytes,
        then: Callable[[], None],
        message_handler: ServerMessageHandler | None = None,
    ) -> None:
        """List the tools of a server, with these raw params, and compare them with the pins; then call `then`.

        What the server sends meanwhile goes to `message_handler`.
        """
        task = asyncio.get_running_loop().create_task(self._compare_first(Asking(message_handler), link, params, then))
        self._comparing.add(task)
        task.add_done_callback(self._comparing.discard)

    async def _compare_first(self, asking: Asking, link: UpstreamLink, params: bytes, then: Callable[[], None]) -> None:
        with self._guarded:
            version = link.tools_version
            entries, answer = await asking.pages(link, "tools/list", "tools", params)
            if answer.result:
                self.pins.review(link.spec.name, entries, compared=(link, version))
        then()

    def note(
        self,
        spec: UpstreamSpec,
        variant: str,
        *,
        greeting: tuple[bytes, str] | None = None,
        entries: Sequence[Raw] | None = None,
    ) -> None:
        """Take what a server said: its raw capabilities and its instructions, or its raw tools.

        A catalog is recorded once its tools are known.
        """
        given = self._latest(spec, variant)
        if greeting is not None:
            given = replace(given, capabilities=greeting[0], instructions=greeting[1])
        if entries is not None:
            given = replace(given, tools=b"[%b]" % b",".join(map(bytes, entries)))
        key, now = (given.fingerprint, given.variant), self._clock()
        if given == self._known.get(key) and now - REFRESH_SECONDS < given.updated_at <= now:
            return
        self._known.pop(key, None)
        self._known[key] = given = replace(given, updated_at=now)
        if len(self._known) > MAX_CATALOGS:
            del self._known[next(iter(self._known))]
        if given.tools and given.size_bytes <= MAX_CATALOG_BYTES:
            with self._guarded:
                self._put(given, given.size_bytes)

    def _latest(self, spec: UpstreamSpec, variant: str) -> StoredToolCatalog:
        return self.find(spec, variant) or StoredToolCatalog(
            fingerprint=self._fingerprint(spec),
            variant=variant,
            server=spec.name,
            capabilities=b"",
            instructions="",
            tools=b"",
            updated_at=0.0,
        )

    def _fingerprint(self, spec: UpstreamSpec) -> str:
        """Return a keyed hash of how a server is started or reached, from which nothing secret can be read."""
        known = self._fingerprints.get(spec.account_key)
        if known is None or known[0] != spec:
            how = [spec.name, spec.kind, spec.command, dict(spec.env), spec.cwd, spec.url, dict(spec.headers)]
            how += [spec.principal] if spec.principal else []
            known = self._fingerprints[spec.account_key] = (spec, self._hasher.catalog(jsonrpc.encode(how)))
        return known[1]
