"""The one decision about a tool: whether it may run, whether it is shown in any case, or whether prediction decides."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from fnmatch import translate
from functools import lru_cache
from typing import Final

from riglm.domain.naming import SEPARATOR
from riglm.domain.override import Override, OverrideKind, OverrideScope

LONGEST_NAME: Final = 512
"""Where anything is denied, a longer name is denied as well: the protocol ends names at 128."""

_MOST_REMEMBERED: Final = 50_000
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATORS: Final = re.compile(r"[\W_]+")
_GLOB: Final = re.compile(r"(\[!?\]?[^\]]*\]|[*?])")


class Standing(Enum):
    """What may become of a tool.

    `DENIED`: it neither appears nor runs. `AWAY`: it is never shown, and runs when it is called by name. `OPEN`:
    prediction decides whether it is shown. `KEPT`: it is always shown.
    """

    DENIED = "denied"
    AWAY = "away"
    OPEN = "open"
    KEPT = "kept"


class Spellings:
    """Names of tools, and glob patterns for them."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """`patterns` as `fnmatch` knows them."""
        self.patterns: Final = tuple(patterns)
        self._exact = _any_of(self.patterns)
        self._loose = _any_of({form for pattern in self.patterns for form in _pattern_forms(pattern)})
        self._bare = {_bare(pattern) for pattern in self.patterns if not _GLOB.search(pattern)} - {""}

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def has(self, name: str) -> bool:
        """Whether a name is among them exactly as spelt."""
        return self._exact is not None and self._exact.match(name) is not None

    def resembles(self, name: str) -> bool:
        """Whether a name is among them in any spelling: other case, other separators, camel case, invisible signs."""
        if self._loose is None:
            return False
        return self.has(name) or _bare(name) in self._bare or any(map(self._loose.match, _forms(name)))


class Policy:
    """Decides by lists and by overrides; the same answer on every path."""

    def __init__(
        self, *, allowed: Spellings | None = None, denied: Spellings | None = None, pinned: Spellings | None = None
    ) -> None:
        """Whatever is not among `allowed` is denied, unless that is None; whatever resembles one of `denied` is.

        A denied name is denied behind the name of any server as well.
        """
        self._allowed = allowed
        self._denied = denied or Spellings(())
        self._pinned = pinned or Spellings(())
        self._listed = lru_cache(_MOST_REMEMBERED)(self._decided_by_lists)
        self.denies: Final = lru_cache(_MOST_REMEMBERED)(self._denies)
        """Whether the deny list has a name, which may be another one than clients see."""

    def decide(self, name: str, overrides: Mapping[str, Sequence[Override]] | None = None) -> Standing:
        """What may become of a tool, given the overrides that hold for a session, by tool.

        Of `include` and `exclude` the later one counts. Including lifts a denial, unless it is for one session only: a
        session is no source of rights.
        """
        mine = overrides.get(name) if overrides else None
        standing = self._by_lists(name)
        return _overridden(standing, mine) if mine else standing

    def _denies(self, name: str) -> bool:
        return bool(self._denied) and any(map(self._denied.resembles, _with_own_names(name)))

    def _by_lists(self, name: str) -> Standing:
        if not name or len(name) > LONGEST_NAME:
            return Standing.DENIED if self._denied or self._allowed is not None else Standing.OPEN
        return self._listed(name)

    def _decided_by_lists(self, name: str) -> Standing:
        if self._allowed is not None and not self._allowed.has(name):
            return Standing.DENIED
        if self.denies(name):
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


def _any_of(patterns: Iterable[str]) -> re.Pattern[str] | None:
    joined = "|".join(translate(pattern) for pattern in sorted(patterns))
    return re.compile(joined) if joined else None


def _forms(name: str) -> set[str]:
    """A name as it is compared: without case and invisible signs, one kind of separator, humps apart or not."""
    seen = _visible(name)
    return {_SEPARATORS.sub("_", form.casefold()) for form in (seen, _HUMP.sub("_", seen))}


def _pattern_forms(pattern: str) -> set[str]:
    """A pattern for names in these forms: what is a glob in it stays one."""
    pieces = _GLOB.split(pattern)
    return {
        "".join(
            piece.casefold() if index % 2 else _SEPARATORS.sub("_", _humps(piece, apart).casefold())
            for index, piece in enumerate(pieces)
        )
        for apart in (False, True)
    }


def _humps(text: str, apart: bool) -> str:
    return _HUMP.sub("_", text) if apart else text


def _with_own_names(name: str) -> Iterator[str]:
    """A name, and what may be a server's own name for the tool: all that follows a separator."""
    yield name
    start = name.find(SEPARATOR)
    while start != -1:
        yield name[start + len(SEPARATOR) :]
        start = name.find(SEPARATOR, start + 1)


def _bare(name: str) -> str:
    return _SEPARATORS.sub("", _visible(name).casefold())


def _visible(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name)
    return "".join(sign for sign in plain if unicodedata.category(sign)[0] != "C").strip()
