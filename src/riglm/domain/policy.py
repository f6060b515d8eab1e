"""The one decision about a tool: whether it may run, whether it is shown in any case, or whether prediction decides."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Final

from riglm.domain.naming import SEPARATOR
from riglm.domain.override import Override, OverrideKind, OverrideScope
from riglm.domain.spelling import Spellings

LONGEST_NAME: Final = 512
"""Where anything is denied, a longer name is denied as well: the protocol ends names at 128."""

MOST_SEPARATORS: Final = 16
"""Where anything is denied, a name in which more servers could be named is denied as well."""

_MOST_REMEMBERED: Final = 50_000


class Standing(Enum):
    """What may become of a tool.

    `DENIED`: it neither appears nor runs. `AWAY`: it is never shown, and runs when it is called by name. `OPEN`:
    prediction decides whether it is shown. `KEPT`: it is always shown.
    """

    DENIED = "denied"
    AWAY = "away"
    OPEN = "open"
    KEPT = "kept"


class Policy:
    """Decides by lists and by overrides; the same answer on every path."""

    def __init__(
        self, *, allowed: Spellings | None = None, denied: Spellings | None = None, pinned: Spellings | None = None
    ) -> None:
        """Everything outside `allowed` is denied, unless that is None; everything that resembles one of `denied` is.

        A denied name is denied behind the name of any server as well.
        """
        self._allowed = allowed
        self._denied = denied or Spellings(())
        self._pinned = pinned or Spellings(())
        self._listed = lru_cache(_MOST_REMEMBERED)(self._decided_by_lists)
        self._denies = lru_cache(_MOST_REMEMBERED)(self._denied_by_list)

    def decide(
        self, name: str, overrides: Mapping[str, Sequence[Override]] | None = None, others: Iterable[str] = ()
    ) -> Standing:
        """What may become of a tool, given the overrides that hold for a session, by tool.

        `others` are names by which the deny list may mean the tool as well, though clients see a different one.
        Of `include` and `exclude` the later one counts. Including lifts a denial, unless it is for one session only: a
        session is no source of rights.
        """
        mine = overrides.get(name) if overrides else None
        standing = Standing.DENIED if any(map(self._denies, others)) else self._by_lists(name)
        return _overridden(standing, mine) if mine else standing

    def denies_by_name(self, name: str) -> bool:
        """True if the deny list means a name, regardless of the allow list."""
        return self._denies(name)

    def _denied_by_list(self, name: str) -> bool:
        if not self._denied:
            return False
        return _is_outlandish(name) or any(map(self._denied.resembles, _with_own_names(name)))

    def _by_lists(self, name: str) -> Standing:
        if not name or _is_outlandish(name):
            return Standing.DENIED if self._denied or self._allowed is not None else Standing.OPEN
        return self._listed(name)

    def _decided_by_lists(self, name: str) -> Standing:
        if self._allowed is not None and not self._allowed.has(name):
            return Standing.DENIED
        if self._denies(name):
            return Standing.DENIED
        return Standing.KEPT if self._pinned.has(name) else Standing.OPEN


def by_tool(overrides: Iterable[Override]) -> dict[str, list[Override]]:
    """Overrides by the tool that they are about."""
    found: dict[str, list[Override]] = {}
    for override in overrides:
        found.setdefault(override.tool, []).append(override)
    return found


def _overridden(standing: Standing, overrides: Sequence[Override]) -> Standing:
    decisive = [override for override in overrides if override.kind is not OverrideKind.PIN]
    last = max(decisive, key=lambda override: override.created_at, default=None)
    included = last is not None and last.kind is OverrideKind.INCLUDE
    if standing is Standing.DENIED:
        rightful = included and last is not None and last.scope is not OverrideScope.SESSION
        return Standing.KEPT if rightful else Standing.DENIED
    if last is not None and not included:
        return Standing.AWAY
    return Standing.KEPT


def _is_outlandish(name: str) -> bool:
    return len(name) > LONGEST_NAME or name.count(SEPARATOR) > MOST_SEPARATORS


def _with_own_names(name: str) -> Iterator[str]:
    """A name, and what may be a server's own name for the tool: all that follows a separator."""
    yield name
    start = name.find(SEPARATOR)
    while start != -1:
        yield name[start + len(SEPARATOR) :]
        start = name.find(SEPARATOR, start + 1)
