"""What riglm calls the tools that clients knew without it."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from riglm.domain.naming import SEPARATOR, Naming, prefixed

_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")
_BROUGHT: Final = ("plugin_", "claude_ai_")
"""What Claude Code puts before the names of servers that a plugin, whose name follows, or an account brings."""


class ResolvedTool(NamedTuple):
    """A tool as riglm lists it, and its server; `behind_riglm` is True if the client called it through riglm."""

    tool: str
    upstream: str
    behind_riglm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyInstance:
    """The servers of one riglm, and what clients call it itself; `before` has servers that had other names then."""

    servers: tuple[str, ...]
    naming: Naming = "prefix"
    entries: frozenset[str] = frozenset({"riglm"})
    before: Mapping[str, str] = field(default_factory=dict)

    def now(self, name: str) -> str:
        """What a server is called now that a client knew by a name."""
        return self.before.get(name, name)


class ToolNames:
    """Finds the tool that a client's name for it means, behind one of several riglms.

    Where no riglm has any servers, every server counts as one of several to come.
    """

    def __init__(self, fronts: Sequence[ProxyInstance], listed: Collection[str]) -> None:
        """`listed` are tool names that riglm has listed before; they resolve names that clients have altered."""
        self._fronts = [front for front in fronts if front.servers]
        self._listed = frozenset(listed)
        self._by_spelling: dict[str, str] = {}
        for name in sorted(self._listed):
            self._by_spelling.setdefault(_altered(name), name)

    @property
    def is_guessing(self) -> bool:
        """Whether no riglm has any servers yet."""
        return not self._fronts

    def find(self, name: str, server: str | None, separator: str) -> ResolvedTool | None:
        """Return the tool of this name in a transcript, or None if its server is not behind riglm.

        `server` is None if it is part of the name, before `separator`.
        """
        for front in self._fronts:
            found = self._behind(front, name, server, separator)
            if found is not None:
                return found
        if self._fronts:
            return None
        owner, tool = (server, name) if server is not None else _divided(name, separator)
        return ResolvedTool(self._as_listed(prefixed(owner, tool)), owner) if owner else None

    def behind(self, tool: str) -> ResolvedTool:
        """A tool by the name that a riglm lists it under."""
        for front in self._fronts:
            _, upstream = self._split(front, tool)
            if upstream:
                return ResolvedTool(self._as_listed(tool), upstream, behind_riglm=True)
        return ResolvedTool(self._as_listed(tool), "", behind_riglm=True)

    def _behind(self, front: ProxyInstance, name: str, server: str | None, separator: str) -> ResolvedTool | None:
        for _, tool in _readings(front.entries, name, server, separator):
            _, upstream = self._split(front, tool)
            return ResolvedTool(self._as_listed(tool), upstream, behind_riglm=True)
        for owner, tool in _readings({*front.servers, *front.before}, name, server, separator):
            now = front.now(owner)
            return ResolvedTool(self._public(front, now, tool), now)
        return None

    def _split(self, front: ProxyInstance, tool: str) -> tuple[str, str]:
        """The server's own name of a tool behind riglm, and the server."""
        if len(front.servers) == 1:
            return tool, front.servers[0]
        return next(((rest, owner) for owner, rest in _readings(front.servers, tool, None, SEPARATOR)), (tool, ""))

    def _public(self, front: ProxyInstance, owner: str, tool: str) -> str:
        if len(front.servers) == 1:
            return self._as_listed(tool)
        whole = self._as_listed(prefixed(owner, tool))
        is_bare = front.naming == "none" or (front.naming == "on_collision" and whole not in self._listed)
        return self._as_listed(tool) if is_bare else whole

    def _as_listed(self, name: str) -> str:
        """The name as riglm lists it, if it has listed one that reads like this to a client."""
        return name if name in self._listed else self._by_spelling.get(_altered(name), name)


def server_of(name: str, server: str | None, separator: str) -> str:
    """Return the server of a tool of this name in a transcript, or None if it is ambiguous."""
    return server if server is not None else _divided(name, separator)[0] or name


def _readings(servers: Collection[str], name: str, server: str | None, separator: str) -> Iterator[tuple[str, str]]:
    """Which of these servers' tools a name may be, those of the longest names first."""
    if server is not None:
        yield from ((one, name) for one in servers if one == server or _altered(one) == server)
        return
    starts = [match.end() for match in re.finditer("_", name)] if name.startswith(_BROUGHT) else []
    for start in (0, *starts):
        for one in sorted(sorted(servers), key=len, reverse=True):
            said = _altered(one) + separator
            if name.startswith(said, start) and len(name) > start + len(said):
                yield one, name[start + len(said) :]


def _divided(name: str, separator: str) -> tuple[str, str]:
    server, _, tool = name.partition(separator)
    return (server, tool) if tool else ("", name)


def _altered(name: str) -> str:
    """The name as clients spell it that allow letters, digits, `_` and `-` alone."""
    return _ODD.sub("_", name)
