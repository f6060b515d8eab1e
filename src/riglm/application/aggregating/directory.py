"""What several upstreams offer together, as one client knows it by now: one list of each kind, and who owns what."""

from collections.abc import Iterable, Sequence
from typing import Final

from riglm.application.aggregating.listings import NAMED, JoinedList, Listings, ServerList
from riglm.domain import protocol
from riglm.domain.jsonrpc import Raw
from riglm.domain.naming import SEPARATOR, may_be_cut, prefixed

_WITH_PREFIX: Final = frozenset({"prefix", "on_collision"})


class Directory:
    """Finds owners, as far as lists are known. Equal lists are shared with all who have them."""

    def __init__(self, servers: Iterable[str], listings: Listings) -> None:
        """Nothing is known yet of `servers`, in the order configured."""
        self._servers = tuple(servers)
        self._listings = listings
        self._lists: dict[str, dict[str, ServerList]] = {method: {} for method in protocol.LIST_MEMBER}
        self._joined: dict[str, JoinedList] = {}

    def knows(self, method: str, server: str) -> bool:
        """Whether the server's list is known."""
        return server in self._lists[method]

    def lacks(self, method: str, server: str, own: str) -> bool:
        """Whether the server's list is known, and has nothing that the server itself calls `own`."""
        known = self._lists[method].get(server)
        return known is not None and own not in known.name_set

    def is_empty(self, method: str, server: str) -> bool:
        """Whether the server's list is known, and there is nothing in it."""
        known = self._lists[method].get(server)
        return known is not None and not known.entries

    def knows_any(self, method: str) -> bool:
        """Whether any server's list is known."""
        return bool(self._lists[method])

    def learn(self, method: str, server: str, entries: Sequence[Raw]) -> bool:
        """Take a server's whole list; whether it is another one than before."""
        known = self._lists[method]
        before, known[server] = known.get(server), self._listings.of_server(method, server, entries)
        changed = before is not known[server]
        if changed:
            self._joined.pop(method, None)
        return changed

    def forget(self, method: str, server: str) -> bool:
        """Remove a server's list; whether there was anything in it."""
        self._joined.pop(method, None)
        known = self._lists[method].pop(server, None)
        return known is not None and bool(known.entries)

    def joined(self, method: str) -> JoinedList:
        """The entries of all servers, in the order configured and each server's own."""
        if method not in self._joined:
            known = self._lists[method]
            parts = [known[server] for server in self._servers if server in known]
            self._joined[method] = self._listings.joined(method, parts)
        return self._joined[method]

    def owner(self, method: str, name: str) -> tuple[str, str] | None:
        """The server that owns what clients call `name`, and its own name for it.

        A server's prefix says whose a name is even while its list is not known, or where it needs none; but what a
        name was cut from is only known by the list.
        """
        found = self.joined(method).owners.get(name)
        if found is not None:
            return found
        if method in NAMED and self._listings.naming in _WITH_PREFIX:
            for server in self._servers:
                if name.startswith(server + SEPARATOR) and (self.knows(method, server) or not may_be_cut(name)):
                    return server, name[len(server) + len(SEPARATOR) :]
        return None

    def spellings(self, name: str) -> tuple[str, ...]:
        """All names under which clients may know the tool that `name` reaches; just one if it is listed so."""
        listed = self.joined("tools/list").owners
        owned = self.owner("tools/list", name)
        if name in listed or owned is None:
            return (name,)
        seen = [public for public, owner in listed.items() if owner == owned]
        server, own = owned
        return tuple(
            dict.fromkeys((name, *(seen or [prefixed(server, own) if self._listings.naming == "prefix" else own])))
        )

    def claimed(self, method: str, name: str) -> dict[str, tuple[str, str]]:
        """What servers themselves call `name`: each one's server and own name, by the name that clients use."""
        return {seen: owner for seen, owner in self.joined(method).owners.items() if owner[1] == name}

    def owner_of_uri(self, uri: str) -> str | None:
        """The server that listed a resource, or a template that fits it."""
        found = self.joined("resources/list").owners.get(uri)
        return found[0] if found is not None else self.joined("resources/templates/list").owner_by_template(uri)
