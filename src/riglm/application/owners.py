"""Who is who: riglm to clients and servers, and the server of each tool."""

from collections.abc import Mapping
from functools import cache
from typing import Final

from riglm.domain.naming import server_in


def riglm_version() -> str:
    """The version of the installed riglm."""
    return server_info()["version"]


@cache
def server_info() -> dict[str, str]:
    """The `Implementation` that riglm sends to clients of several upstreams and to upstreams in its requests."""
    from importlib.metadata import version  # noqa: PLC0415  # costs 50 ms that most conversations need not pay

    return {"name": "riglm", "title": "riglm", "version": version("riglm")}


MAX_NAMES: Final = 50_000
"""Maximum number of names that are kept; further names have no owner."""


class ToolOwners:
    """Remembers the server of every listed tool, and the server's own name for it."""

    def __init__(self, only: str = "") -> None:
        """`only` is the one server that there is, if there is one."""
        self.only = only
        self._owners: dict[str, tuple[str, str]] = {}
        self._noted: Mapping[str, tuple[str, str]] | None = None

    def note(self, owners: Mapping[str, tuple[str, str]]) -> None:
        """Server and own name by the name that clients use, of several servers shown as one."""
        if owners is self._noted:
            return
        self._noted = owners
        if len(self._owners) + len(owners) > MAX_NAMES:
            self._owners.clear()
        self._owners.update(owners)

    def servers(self) -> dict[str, str]:
        """The server of each tool that several servers list together now, by the name that clients use."""
        return {name: server for name, (server, _) in (self._noted or {}).items()}

    def server_of(self, name: str) -> str:
        """Return the server of a tool, by its prefix if no owner is known."""
        return self.of(name)[0] or server_in(name)

    def of(self, name: str) -> tuple[str, str]:
        """Return the server, empty if no owner is known, and the server's name for the tool."""
        return self._owners.get(name) or (self.only, name)
