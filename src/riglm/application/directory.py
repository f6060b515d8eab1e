"""What several upstreams offer together: one list of each kind, and who owns what."""

import logging
import re
from collections.abc import Iterable
from typing import Final

from riglm.domain import jsonrpc, protocol
from riglm.domain.jsonrpc import Raw
from riglm.domain.naming import SEPARATOR, Naming, public_names

_log = logging.getLogger("riglm.proxy")

NAMED: Final = {"tools/list": "name", "prompts/list": "name"}
"""Lists whose entries get the server's name; what is found by URI keeps its URI."""

_KEY: Final = {**NAMED, "resources/list": "uri", "resources/templates/list": "uriTemplate"}
_EXPRESSION: Final = re.compile(r"\{[^}]*\}")


class Directory:
    """Joins lists and finds owners. Entries stay raw; only a name that gets a prefix is replaced in them."""

    def __init__(self, servers: Iterable[str], naming: Naming) -> None:
        """Nothing is known yet of `servers`, in the order configured."""
        self._servers = tuple(servers)
        self._naming = naming
        self._entries: dict[str, dict[str, tuple[Raw, ...]]] = {method: {} for method in protocol.LIST_MEMBER}
        self._joined: dict[str, list[bytes]] = {}
        self._owners: dict[str, dict[str, tuple[str, str]]] = {}
        self._told: set[tuple[str, str, str]] = set()

    def knows(self, method: str, server: str) -> bool:
        """Whether the server's list is known."""
        return server in self._entries[method]

    def learn(self, method: str, server: str, entries: Iterable[Raw]) -> None:
        """Take a server's whole list."""
        self._entries[method][server] = tuple(entries)
        self._joined.pop(method, None)
        self._owners.pop(method, None)

    def joined(self, method: str) -> list[bytes]:
        """The entries of all servers, in the order configured and each server's own."""
        if method not in self._joined:
            self._joined[method] = self._join(method)
        return self._joined[method]

    def owner(self, method: str, name: str) -> tuple[str, str] | None:
        """The server that owns what clients call `name`, and its own name for it."""
        found = self._owned(method).get(name)
        if found is not None:
            return found
        if method in NAMED and self._naming == "prefix":
            for server in self._servers:
                if name.startswith(server + SEPARATOR):
                    return server, name[len(server) + len(SEPARATOR) :]
        return None

    def owner_of_uri(self, uri: str) -> str | None:
        """The server that listed a resource, or a template that fits it."""
        found = self._owned("resources/list").get(uri)
        if found is not None:
            return found[0]
        for template, (server, _) in self._owned("resources/templates/list").items():
            if uri == template or _fits(template, uri):
                return server
        return None

    def _owned(self, method: str) -> dict[str, tuple[str, str]]:
        if method not in self._owners:
            entries = self._entries[method]
            owned = {server: self._names(method, entries.get(server, ())) for server in self._servers}
            naming: Naming = self._naming if method in NAMED else "none"
            self._owners[method], collisions = public_names(naming, owned)
            for collision in collisions:
                if collision not in self._told:
                    self._told.add(collision)
                    name, holder, left_out = collision
                    _log.error(
                        "two servers claim one name: the first one has it",
                        extra={"claimed": name, "first": holder, "left_out": left_out},
                    )
        return self._owners[method]

    def _names(self, method: str, entries: Iterable[Raw]) -> list[str]:
        key = _KEY[method]
        names = (jsonrpc.text(jsonrpc.members(entry).get(key)) for entry in entries)
        return [name for name in names if name is not None]

    def _join(self, method: str) -> list[bytes]:
        key = _KEY[method]
        public = {owned: name for name, owned in self._owned(method).items()}
        out: list[bytes] = []
        for server in self._servers:
            for entry in self._entries[method].get(server, ()):
                own = jsonrpc.text(jsonrpc.members(entry).get(key))
                seen = public.pop((server, own), None) if own is not None else None
                if seen is not None:
                    out.append(
                        bytes(entry) if seen == own else jsonrpc.with_member(entry, (key,), jsonrpc.encode(seen))
                    )
        return out


def _fits(template: str, uri: str) -> bool:
    """Whether a URI could come from a template, every expression taken for any text."""
    literal = (re.escape(part) for part in _EXPRESSION.split(template))
    return re.fullmatch(".+?".join(literal), uri, re.DOTALL) is not None
