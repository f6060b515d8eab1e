"""The tools that servers have listed: those of this process, and those that the store has from before."""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from riglm.application.failing_open import FailingOpen
from riglm.domain import jsonrpc, request_params
from riglm.domain.hashing import KEY_BYTES, KeyedHasher
from riglm.domain.jsonrpc import MalformedMessageError, Raw
from riglm.domain.session import ProtocolEra
from riglm.domain.tool import MAX_CATALOG_BYTES, StoredToolCatalog, Tool, ToolCatalog, read_catalog
from riglm.domain.upstream import AccountKey, UpstreamSpec

MAX_PAGES: Final = 1000
"""Pages of one server's list beyond this many are forwarded and not remembered."""

REFRESH_SECONDS: Final = 86_400.0
"""Seconds after which an unchanged catalog is recorded again, so that the store does not take it for unused."""

MAX_LISTS: Final = 16
"""Maximum number of different lists that are kept as they are filtered."""

MAX_CATALOGS: Final = 256
"""Maximum number of stored catalogs in memory. The oldest are removed first."""

_EMPTY: Final = ToolCatalog()
_log: Final = logging.getLogger("riglm.proxy")


class ListedTools:
    """The last list of each server, by the server's names, so that an unchanged list is not parsed again."""

    def __init__(self) -> None:
        self._pages: dict[str, dict[bytes, ToolCatalog]] = {}
        """By server, its pages by the raw cursor that requested them."""
        self._joined: dict[str, ToolCatalog] = {}
        self._entries: dict[str, tuple[Sequence[Raw], bytes]] = {}
        """By server, the entries of its last complete list, and the result that they make."""

    def learn(self, server: str, entries: Sequence[Raw]) -> None:
        """Take the entries of a complete list, the same object if they come again."""
        known, result = self._entries.get(server, (None, b""))
        if known is not entries:
            result = b'{"tools":[%b]}' % b",".join(map(bytes, entries))
            self._entries[server] = entries, result
        self.read(server, b"", result)

    def read(self, server: str, cursor: bytes, result: bytes) -> ToolCatalog:
        """Return the page in a raw result; the page without a cursor begins a new list."""
        pages = self._pages.setdefault(server, {})
        last = pages.get(cursor)
        if last is not None and last.raw == result:
            return last
        page = read_catalog(result)
        if not cursor:
            pages.clear()
        if len(pages) < MAX_PAGES or cursor in pages:
            pages[cursor] = page
            self._joined.pop(server, None)
        return page

    def of(self, server: str) -> ToolCatalog:
        """Return all tools that a server has listed so far."""
        joined = self._joined.get(server)
        if joined is None:
            joined = self._joined[server] = join_pages(list(self._pages.get(server, {}).values()))
        return joined

    def lacks(self, server: str, tool: str) -> bool:
        """Whether the complete list of a server is known, and has no such tool."""
        return tool not in self.of(server).name_set and self._is_complete(server)

    def counts(self) -> dict[str, int]:
        """Return how many tools each server has listed."""
        return {server: len(self.of(server).names) for server in self._pages}

    def input_schema(self, server: str, tool: str) -> Raw | None:
        """Return the raw `inputSchema` of a listed tool."""
        return (self._joined.get(server) or self.of(server)).input_schema(tool)

    def _is_complete(self, server: str) -> bool:
        pages = self._pages.get(server, {})
        page = pages.get(b"")
        for _ in pages:  # a cursor may lead back to where it came from
            if page is None or not page.next_cursor:
                break
            page = pages.get(page.next_cursor)
        return page is not None and not page.next_cursor


def join_pages(pages: Sequence[ToolCatalog]) -> ToolCatalog:
    """Return the tools of all pages; of tools with the same name, the first one counts."""
    if len(pages) <= 1:
        return pages[0] if pages else _EMPTY
    tools: dict[str, Tool] = {}
    others = []
    for page in pages:
        for entry, tool in page.entries():
            if tool is None:
                others.append((len(tools), entry))
            else:
                tools.setdefault(tool.name, tool)
    return ToolCatalog(tuple(tools.values()), b"\n".join(page.raw for page in pages), tuple(others))


def has_one_name(tool: Tool) -> bool:
    """Whether a listed tool has the same name for every reader."""
    if request_params.mistakable_keys(jsonrpc.members(tool.raw), ("name",)):
        return False
    try:
        return jsonrpc.repeated(bytes(tool.raw), (b'"name"',)) is None
    except MalformedMessageError:
        return False


def plainly_named(catalog: ToolCatalog) -> ToolCatalog:
    """Return a catalog without what has other names for other readers, or none for riglm."""
    tools = tuple(tool for tool in catalog.tools if has_one_name(tool))
    return ToolCatalog(tools, catalog.raw, missing=catalog.missing)


class CatalogReader:
    """Gives the same object again for the same list of tools.

    What riglm writes keeps its order when a server lists the same tools in another order at each request.
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[bool, ToolCatalog, ToolCatalog]] = deque(maxlen=MAX_LISTS)

    def read(self, listed: ToolCatalog, *, plainly: bool) -> ToolCatalog:
        """Return a list as it is filtered; with `plainly`, what has other names for other readers is left out."""
        for kept_plainly, kept, catalog in self._kept:
            if kept_plainly == plainly and (kept is listed or (kept.raw and kept.raw == listed.raw)):
                return catalog
        catalog = self._steady(plainly_named(listed) if plainly else listed, plainly=plainly)
        self._kept.appendleft((plainly, listed, catalog))
        return catalog

    def _steady(self, read: ToolCatalog, *, plainly: bool) -> ToolCatalog:
        """Return a list in the order in which its tools were first seen, if its server changes the order."""
        known = [catalog for kept_plainly, _, catalog in self._kept if kept_plainly == plainly]
        for catalog in known:
            if _have_the_same(catalog, read):
                return catalog
        akin = (each for each in known if 2 * len(each.name_set & read.name_set) > len(read.name_set))
        last = next(akin, None)
        return read if last is None else _in_order_of(last, read)


def _have_the_same(one: ToolCatalog, other: ToolCatalog) -> bool:
    """Return True if two lists have the same entries, in any order, and lack the same servers."""
    if one.missing != other.missing or len(one.tools) != len(other.tools) or one.name_set != other.name_set:
        return False
    first, second = (sorted(bytes(raw) for raw, _ in each.entries()) for each in (one, other))
    return first == second


def _in_order_of(known: ToolCatalog, read: ToolCatalog) -> ToolCatalog:
    """Return a list in the order of the previous one with new tools last, or unchanged if it only adds or removes."""
    places = {name: place for place, name in enumerate(dict.fromkeys(known.names))}
    found = [places[name] for name in read.names if name in places]
    if found == sorted(found):
        return read
    tools = sorted(read.tools, key=lambda tool: places.get(tool.name, len(places)))
    return replace(read, tools=tuple(tools))


class StoredCatalogs:
    """The latest catalog of each of several servers, with which riglm answers before they do; changes are recorded."""

    def __init__(
        self,
        hasher: KeyedHasher | None = None,
        put: Callable[[StoredToolCatalog, int], None] = lambda *_: None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`put` records a catalog and its size in bytes without blocking. By default catalogs stay in this process."""
        self._hasher = hasher or KeyedHasher(os.urandom(KEY_BYTES))
        self._put = put
        self._clock = clock
        self._known: dict[tuple[str, str], StoredToolCatalog] = {}
        self._entries: dict[tuple[str, str], Sequence[Raw]] = {}
        """The entries of each catalog that was noted, the same object if they come again."""
        self._fingerprints: dict[AccountKey, tuple[UpstreamSpec, str]] = {}
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

    def note(
        self,
        spec: UpstreamSpec,
        variant: str,
        *,
        greeting: tuple[bytes, str] | None = None,
        entries: Sequence[Raw] | None = None,
    ) -> None:
        """Take what a server sent: its raw capabilities and its instructions, or its raw tools.

        A catalog is recorded once its tools are known.
        """
        key, now = (self._fingerprint(spec), variant), self._clock()
        known = self._known.get(key)
        if known is not None and entries is not None and entries is self._entries.get(key):
            is_recent = now - REFRESH_SECONDS < known.updated_at <= now
            if is_recent and greeting in (None, (known.capabilities, known.instructions)):
                return
        catalog = known or StoredToolCatalog(
            fingerprint=key[0],
            variant=variant,
            server=spec.name,
            capabilities=b"",
            instructions="",
            tools=b"",
            updated_at=0.0,
        )
        if greeting is not None:
            catalog = replace(catalog, capabilities=greeting[0], instructions=greeting[1])
        if entries is not None:
            catalog = replace(catalog, tools=b"[%b]" % b",".join(map(bytes, entries)))
            self._entries[key] = entries
        if catalog == known and now - REFRESH_SECONDS < catalog.updated_at <= now:
            return
        self._known.pop(key, None)
        self._known[key] = catalog = replace(catalog, updated_at=now)
        if len(self._known) > MAX_CATALOGS:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._entries.pop(oldest, None)
        if catalog.tools and catalog.size_bytes <= MAX_CATALOG_BYTES:
            with self._guarded:
                self._put(catalog, catalog.size_bytes)

    def _fingerprint(self, spec: UpstreamSpec) -> str:
        """Return a keyed hash of how a server is started or reached, from which nothing secret can be read."""
        known = self._fingerprints.get(spec.account_key)
        if known is None or known[0] != spec:
            how = [spec.name, spec.kind, spec.command, dict(spec.env), spec.cwd, spec.url, dict(spec.headers)]
            how += [spec.principal] if spec.principal else []
            known = self._fingerprints[spec.account_key] = (spec, self._hasher.catalog(jsonrpc.encode(how)))
        return known[1]
