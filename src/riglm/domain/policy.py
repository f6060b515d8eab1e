"""The one decision about a tool: whether it may run, whether it is shown in any case, or whether prediction decides."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from fnmatch import translate
from functools import lru_cache
from typing import Final
from uuid import UUID

from riglm.domain.jsonrpc import Raw
from riglm.domain.naming import SEPARATOR, NamePatterns


class OverrideKind(StrEnum):
    """The action on the tool: show it, hide it, or keep it in every list.

    A shown or kept tool has its place in the catalog's order, for the sake of clients' prompt caches.
    """

    INCLUDE = "include"
    EXCLUDE = "exclude"
    PIN = "pin"


class OverrideScope(StrEnum):
    """Whom an override concerns."""

    SESSION = "session"
    PRINCIPAL = "principal"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A manual decision about one tool, regardless of predictions.

    `tool` is the name as clients see it. `key` says which session (its id) or which principal (its keyed hash) is
    concerned; it is empty where the scope is all, and for the principal of callers without a name, such as the local
    user. Times are in seconds since the epoch; `expires_at` is None when it holds until it is deleted.
    """

    id: UUID
    kind: OverrideKind
    tool: str
    created_at: float
    scope: OverrideScope = OverrideScope.ALL
    key: str = ""
    expires_at: float | None = None
    reason: str = ""

    def holds(self, at: float) -> bool:
        """Whether it has not expired at the given time."""
        return self.expires_at is None or at < self.expires_at

    def concerns(self, session_id: str, principal: str) -> bool:
        """True if it applies to this session of this principal."""
        if self.scope is OverrideScope.ALL:
            return True
        return self.key == (session_id if self.scope is OverrideScope.SESSION else principal)


MAX_NAME_LENGTH: Final = 512
"""Where anything is denied, a longer name is denied as well: the protocol ends names at 128."""

MAX_SEPARATORS: Final = 16
"""Where anything is denied, a name in which more servers could be named is denied as well."""

_MAX_REMEMBERED: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSwitch:
    """The status that a tool of a gateway is to have because of an override.

    `tool` is the name under which the gateway lists the tool, `definition` the raw JSON of its definition, None if the
    tool has not been listed yet.
    """

    override_id: UUID
    tool: str
    is_active: bool
    definition: Raw | None = None


class ToolVisibility(Enum):
    """The policy's result for a tool.

    `DENIED`: it is neither listed nor callable. `NEVER`: it is never listed, but callable by name. `AUTO`: prediction
    decides whether it is listed. `ALWAYS`: it is always listed.
    """

    DENIED = "denied"
    NEVER = "never"
    AUTO = "auto"
    ALWAYS = "always"


class Policy:
    """Decides by lists and by overrides; the same answer on every path."""

    def __init__(
        self,
        *,
        allowed: NamePatterns | None = None,
        denied: NamePatterns | None = None,
        pinned: NamePatterns | None = None,
    ) -> None:
        """Everything outside `allowed` is denied, unless that is None; everything that resembles one of `denied` is.

        A denied name is denied behind the name of any server as well.
        """
        self._allowed = allowed
        self._denied = denied or NamePatterns(())
        self._pinned = pinned or NamePatterns(())
        self._listed = lru_cache(_MAX_REMEMBERED)(self._decided_by_lists)
        self.denies_by_name = lru_cache(_MAX_REMEMBERED)(self._denied_by_list)

    def decide(
        self, name: str, overrides: Mapping[str, Sequence[Override]] | None = None, others: Iterable[str] = ()
    ) -> ToolVisibility:
        """What may become of a tool, given the overrides that hold for a session, by tool.

        `others` are names by which the deny list may mean the tool as well, though clients see a different one.
        Of `include` and `exclude` the later one counts. Including lifts a denial, unless it is for one session only: a
        session is no source of rights.
        """
        mine = overrides.get(name) if overrides else None
        visibility = ToolVisibility.DENIED if any(map(self.denies_by_name, others)) else self._by_lists(name)
        return _overridden(visibility, mine) if mine else visibility

    def _denied_by_list(self, name: str) -> bool:
        """True if the deny list means a name, regardless of the allow list."""
        if not self._denied:
            return False
        return _is_outlandish(name) or any(map(self._denied.resembles, _with_own_names(name)))

    def _by_lists(self, name: str) -> ToolVisibility:
        if not name or _is_outlandish(name):
            return ToolVisibility.DENIED if self._denied or self._allowed is not None else ToolVisibility.AUTO
        return self._listed(name)

    def _decided_by_lists(self, name: str) -> ToolVisibility:
        if self._allowed is not None and not self._allowed.has(name):
            return ToolVisibility.DENIED
        if self.denies_by_name(name):
            return ToolVisibility.DENIED
        return ToolVisibility.ALWAYS if self._pinned.has(name) else ToolVisibility.AUTO


def by_tool(overrides: Iterable[Override]) -> dict[str, list[Override]]:
    """Overrides by the tool that they are about."""
    found: dict[str, list[Override]] = {}
    for override in overrides:
        found.setdefault(override.tool, []).append(override)
    return found


def find_decisive(overrides: Iterable[Override]) -> Override | None:
    """Return the override of one tool that decides whether it is shown: the latest that includes or excludes it."""
    decisive = (override for override in overrides if override.kind is not OverrideKind.PIN)
    return max(decisive, key=lambda override: override.created_at, default=None)


def _overridden(visibility: ToolVisibility, overrides: Sequence[Override]) -> ToolVisibility:
    last = find_decisive(overrides)
    included = last is not None and last.kind is OverrideKind.INCLUDE
    if visibility is ToolVisibility.DENIED:
        rightful = included and last is not None and last.scope is not OverrideScope.SESSION
        return ToolVisibility.ALWAYS if rightful else ToolVisibility.DENIED
    if last is not None and not included:
        return ToolVisibility.NEVER
    return ToolVisibility.ALWAYS


def _is_outlandish(name: str) -> bool:
    return len(name) > MAX_NAME_LENGTH or name.count(SEPARATOR) > MAX_SEPARATORS


def _with_own_names(name: str) -> Iterator[str]:
    """A name, and what may be a server's own name for the tool: all that follows a separator."""
    yield name
    start = name.find(SEPARATOR)
    while start != -1:
        yield name[start + len(SEPARATOR) :]
        start = name.find(SEPARATOR, start + 1)


_CLIENT_PREFIX: Final = f"mcp{SEPARATOR}"
_CLASS: Final = re.compile(r"\[!?\]?[^\]]*\]")
_NOTHING: Final = "(?!)"
"""What `fnmatch` makes of brackets that no sign fits."""


def fault(pattern: str) -> tuple[str, str] | None:
    """Return the problem and the fix; None if there may be tools that the pattern matches."""
    if not pattern.strip():
        return "an empty pattern matches no tool", "remove it, or name a tool"
    if pattern != pattern.strip():
        return f"{pattern!r} has spaces at an end, and matches no tool", f"write {pattern.strip()!r}"
    plain = _CLASS.sub("", pattern)
    if "," in plain:
        parts = [part.strip() for part in pattern.split(",") if part.strip()]
        return (
            f"{pattern!r} is one pattern with a comma in it",
            f"make one entry of each: {', '.join(map(repr, parts))}",
        )
    if "[" in plain:
        return f"{pattern!r} opens a bracket and does not close it", "close it, or write [[] for the sign itself"
    for each in _CLASS.findall(pattern):
        if _NOTHING in translate(each):
            return f"no sign fits {each} in {pattern!r}", "write the range from its lower end to its upper one"
    return _name_of_a_client(pattern)


def _name_of_a_client(pattern: str) -> tuple[str, str] | None:
    if not pattern.startswith(_CLIENT_PREFIX):
        return None
    server, _, own = pattern.removeprefix(_CLIENT_PREFIX).partition(SEPARATOR)
    if not server or not own:
        return None
    return (
        f"{pattern!r} is a name as clients show it, with {_CLIENT_PREFIX}{server}{SEPARATOR} before the tool's own",
        f"write {own!r}, or {server + SEPARATOR + own!r} where riglm has several servers; "
        f"if one is called 'mcp', write [m]{pattern[1:]}",
    )
