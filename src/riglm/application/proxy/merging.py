"""Lists of several servers, joined; what is equal for many clients is kept once for all of them."""

import asyncio
import hashlib
import logging
import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from riglm.domain import jsonrpc, protocol
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.naming import SEPARATOR, Naming, may_be_cut, prefixed, public_names
from riglm.domain.tool import Tool, ToolCatalog
from riglm.domain.uri_template import UriTemplate

NAMED: Final = {"tools/list": "name", "prompts/list": "name"}
"""Lists whose entries get the server's name; what is found by URI keeps its URI."""

_KEY: Final = {**NAMED, "resources/list": "uri", "resources/templates/list": "uriTemplate"}
_log = logging.getLogger("riglm.proxy")

NameCollision = tuple[str, str, str]
"""A name that two servers claim, the server that has it, and the one that is left out."""


def list_entries(method: str, pages: Iterable[Message]) -> list[Raw]:
    """Return the raw entries of all pages of a list."""
    member = protocol.LIST_MEMBER[method]
    return [each for page in pages for each in jsonrpc.elements(jsonrpc.members(page.result).get(member, b"[]"))]


class UpstreamList:
    """One server's whole list of one kind, never changed."""

    def __init__(self, method: str, server: str, entries: Sequence[Raw]) -> None:
        """`entries` as the server wrote them."""
        key = _KEY[method]
        self.server = server
        self.entries = tuple(entries)
        self.names = tuple(jsonrpc.text(jsonrpc.members(entry).get(key)) for entry in entries)


class MergedList:
    """The lists of several servers as one, in the order configured and each server's own, never changed.

    Entries stay raw; only a name that gets a prefix is replaced in them. Entries without a name are left out.
    """

    def __init__(self, method: str, parts: Sequence[UpstreamList], naming: Naming) -> None:
        """`parts` are the lists that are known."""
        owned = {part.server: [name for name in part.names if name is not None] for part in parts}
        self.parts = tuple(parts)
        self.owners, self.collisions = public_names(naming if method in NAMED else "none", owned)
        self._key = _KEY[method]
        self._result: tuple[Mapping[str, Raw], bytes] | None = None

    @cached_property
    def catalog(self) -> ToolCatalog:
        """The entries by the names that clients use."""
        public = {owned: name for name, owned in self.owners.items()}
        found = []
        for part in self.parts:
            for own, entry in zip(part.names, part.entries, strict=True):
                seen = public.pop((part.server, own), None) if own is not None else None
                if seen is None:
                    continue
                raw = entry if seen == own else Raw(jsonrpc.with_member(entry, (self._key,), jsonrpc.encode(seen)))
                found.append(Tool(seen, raw))
        return ToolCatalog(tuple(found))

    @cached_property
    def raw(self) -> bytes:
        """All entries as a raw JSON array."""
        return b"[%b]" % b",".join([bytes(entry.raw) for entry in self.catalog.tools])

    def result(self, member: str, fields: Mapping[str, Raw]) -> bytes:
        """Return the raw result of a list with all entries as this member, and with constant fields."""
        if self._result is None or self._result[0] is not fields:
            self._result = fields, jsonrpc.join_object({member: Raw(self.raw), **fields})
        return self._result[1]

    @cached_property
    def _templates(self) -> list[tuple[UriTemplate, str]]:
        """The heaviest first; among equals the order of the list holds."""
        found = [(UriTemplate(name), server) for name, (server, _) in self.owners.items()]
        return sorted(found, key=lambda one: -one[0].weight)

    def owner_by_template(self, uri: str) -> str | None:
        """The server of the template that fits a URI and has most in common with it."""
        return next((server for template, server in self._templates if template.fits(uri)), None)


class _LastList(NamedTuple):
    """The list that a server sent last: the raw results of its pages, and their entries."""

    results: tuple[Raw, ...]
    entries: Sequence[Raw]
    listed: UpstreamList


_result_of: Final = operator.attrgetter("result")


def _are_equal(some: Sequence[Raw], others: Sequence[Raw]) -> bool:
    """Return True if raw results are equal; those that did not change are mostly the same objects."""
    if len(some) == len(others) and all(map(operator.is_, some, others)):
        return True
    return list(map(bytes, some)) == list(map(bytes, others))


class MergedListCache:
    """Merges lists, and returns the same object for equal lists as long as one is in use."""

    def __init__(self, naming: Naming, *, logs_collisions: bool = True) -> None:
        """`logs_collisions`: each collision is logged once."""
        self.naming: Final = naming
        self._tells = logs_collisions
        self._lists: WeakValueDictionary[tuple[str, str, bytes], UpstreamList] = WeakValueDictionary()
        self._joined: WeakValueDictionary[tuple[str, tuple[UpstreamList, ...]], MergedList] = WeakValueDictionary()
        self._last: dict[tuple[str, str], _LastList] = {}
        self._told: set[tuple[str, str, str]] = set()
        self._reported_missing: set[str] = set()

    def entries(self, method: str, server: str, pages: Sequence[Message]) -> Sequence[Raw]:
        """Return the entries of a server's pages, the same object if these are the pages that it sent last."""
        results, last = tuple(map(_result_of, pages)), self._last.get((method, server))
        if last is None or not _are_equal(last.results, results):
            entries = list_entries(method, pages)
            last = self._last[method, server] = _LastList(results, entries, self.of_server(method, server, entries))
        return last.entries

    def of_server(self, method: str, server: str, entries: Sequence[Raw]) -> UpstreamList:
        """Return the complete list of a server with these entries."""
        last = self._last.get((method, server))
        if last is not None and last.entries is entries:
            return last.listed
        key = (method, server, hashlib.blake2b(b"\0".join(entries), digest_size=16).digest())
        known = self._lists.get(key)
        if known is None:
            known = self._lists[key] = UpstreamList(method, server, entries)
        return known

    def joined(self, method: str, parts: Iterable[UpstreamList]) -> MergedList:
        """Lists of several servers as one."""
        key = (method, tuple(parts))
        known = self._joined.get(key)
        if known is None:
            known = self._joined[key] = MergedList(method, key[1], self.naming)
            if self._tells:
                self._notify(method, known.collisions)
        return known

    def report_missing(self, servers: Iterable[str]) -> None:
        """Log the servers that an incomplete tool list lacks, each of them once."""
        missing = [server for server in servers if server not in self._reported_missing]
        if missing:
            self._reported_missing.update(missing)
            _log.warning("tool list is incomplete; servers have not sent their tools yet", extra={"missing": missing})

    def _notify(self, method: str, collisions: Iterable[NameCollision]) -> None:
        """Log once which two servers collide; those that show the same resource may well mean it."""
        level = logging.ERROR if method in NAMED else logging.INFO
        claimed: dict[tuple[str, str, str], list[str]] = {}
        for name, holder, left_out in collisions:
            claimed.setdefault((method, holder, left_out), []).append(name)
        for (_, holder, left_out), names in claimed.items():
            if (method, holder, left_out) not in self._told:
                self._told.add((method, holder, left_out))
                about = {"method": method, "claimed": names[:5], "names": len(names)}
                words = "two servers claim one name: the first one has it"
                _log.log(level, words, extra={**about, "first": holder, "left_out": left_out})


def merged(one: Any, other: Any) -> Any:
    """Two plain values as one: objects joined member by member, arrays one after the other, either truth is true.

    Of anything else the later one counts.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return {**one, **{key: merged(one[key], value) if key in one else value for key, value in other.items()}}
    if isinstance(one, list) and isinstance(other, list):
        return one + [value for value in other if value not in one]
    if isinstance(one, bool) and isinstance(other, bool):
        return one or other
    return other if other is not None else one


async def wait_for_each(timeouts: Mapping["asyncio.Task[Any]", float]) -> None:
    """Wait until every task is done or its timeout, in seconds, is over. No task is cancelled."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        passed = loop.time() - began
        left = {task: seconds - passed for task, seconds in timeouts.items() if not task.done() and seconds > passed}
        if not left:
            return
        await asyncio.wait(left, timeout=max(left.values()), return_when=asyncio.FIRST_COMPLETED)


_WITH_PREFIX: Final = frozenset({"prefix", "on_collision"})


class Directory:
    """Maps names to servers for the lists that are known. Equal lists are shared."""

    def __init__(self, servers: Iterable[str], merged_lists: MergedListCache) -> None:
        """Nothing is known yet of `servers`, in the order configured."""
        self._servers = tuple(servers)
        self._merged_lists = merged_lists
        self._lists: dict[str, dict[str, UpstreamList]] = {method: {} for method in protocol.LIST_MEMBER}
        self._joined: dict[str, MergedList] = {}

    def knows(self, method: str, server: str) -> bool:
        """Whether the server's list is known."""
        return server in self._lists[method]

    def is_empty(self, method: str, server: str) -> bool:
        """Whether the server's list is known, and there is nothing in it."""
        known = self._lists[method].get(server)
        return known is not None and not known.entries

    def knows_any(self, method: str) -> bool:
        """Whether any server's list is known."""
        return bool(self._lists[method])

    def entries(self, method: str, server: str, pages: Sequence[Message]) -> Sequence[Raw]:
        """Return the raw entries of all pages of a server's list."""
        return self._merged_lists.entries(method, server, pages)

    def learn(self, method: str, server: str, entries: Sequence[Raw]) -> bool:
        """Store the complete list of a server. Returns True if it has changed."""
        known = self._lists[method]
        before, known[server] = known.get(server), self._merged_lists.of_server(method, server, entries)
        changed = before is not known[server]
        if changed:
            self._joined.pop(method, None)
        return changed

    def forget(self, method: str, server: str) -> bool:
        """Remove a server's list; whether there was anything in it."""
        self._joined.pop(method, None)
        known = self._lists[method].pop(server, None)
        return known is not None and bool(known.entries)

    def joined(self, method: str) -> MergedList:
        """The entries of all servers, in the order configured and each server's own."""
        if method not in self._joined:
            known = self._lists[method]
            parts = [known[server] for server in self._servers if server in known]
            self._joined[method] = self._merged_lists.joined(method, parts)
        return self._joined[method]

    def owner(self, method: str, name: str) -> tuple[str, str] | None:
        """Return the server that owns `name`, and the server's name for it.

        A server's prefix says whose a name is even while its list is not known, or where it needs none; but what a
        name was cut from is only known by the list.
        """
        found = (self._joined.get(method) or self.joined(method)).owners.get(name)
        if found is not None:
            return found
        if method in NAMED and self._merged_lists.naming in _WITH_PREFIX:
            for server in self._servers:
                if name.startswith(server + SEPARATOR) and (self.knows(method, server) or not may_be_cut(name)):
                    return server, name[len(server) + len(SEPARATOR) :]
        return None

    def name_patterns(self, name: str) -> tuple[str, ...]:
        """All names under which clients may know the tool that `name` reaches; just one if it is listed so."""
        listed = self.joined("tools/list").owners
        owned = self.owner("tools/list", name)
        if name in listed or owned is None:
            return (name,)
        seen = [public for public, owner in listed.items() if owner == owned]
        server, own = owned
        return tuple(
            dict.fromkeys((name, *(seen or [prefixed(server, own) if self._merged_lists.naming == "prefix" else own])))
        )

    def public_names(self, method: str, own_name: str) -> list[str]:
        """Return the names that clients use for what servers themselves call `own_name`."""
        return [public for public, owner in self.joined(method).owners.items() if owner[1] == own_name]

    def owner_of_uri(self, uri: str) -> str | None:
        """The server that listed a resource, or a template that fits it."""
        found = self.joined("resources/list").owners.get(uri)
        return found[0] if found is not None else self.joined("resources/templates/list").owner_by_template(uri)
