"""What clients call the tools and prompts of several servers."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from typing import Final, Literal

SEPARATOR: Final = "__"
"""Separates a server's name from a tool's."""

MAX: Final = 52
"""No name that riglm makes is longer: providers take 64 characters, and clients put up to 12 before it."""

Naming = Literal["prefix", "on_collision", "none"]
"""Whether names start with the server's always, when two servers share a name, or never."""

_HASH: Final = 8
_CUT: Final = re.compile(rf".{{{MAX - _HASH - 1}}}_[0-9a-f]{{{_HASH}}}", re.DOTALL)


def prefixed(server: str, name: str) -> str:
    """The name of a server's tool among those of others; a long one is cut and ends in a hash of the whole."""
    whole = f"{server}{SEPARATOR}{name}"
    if len(whole) <= MAX:
        return whole
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{whole[: MAX - _HASH - 1]}_{digest}"


def server_in(name: str) -> str:
    """Return the server that a tool's name begins with, empty if there is none."""
    server, separator, _ = name.partition(SEPARATOR)
    return server if separator else ""


def may_be_cut(name: str) -> bool:
    """True if a name may be the short form of a longer one, which only a list can decide."""
    return _CUT.fullmatch(name) is not None


def public_names(
    naming: Naming, owned: Mapping[str, Sequence[str]]
) -> tuple[dict[str, tuple[str, str]], list[tuple[str, str, str]]]:
    """The names that clients use, and the collisions that remain.

    Args:
        naming: the policy.
        owned: each server's own names, servers in the order configured.

    Returns:
        The server and its tool name by the name that clients use, in order; and for each name that two servers claim
        the name, the server that has it, and the one that is left out.
    """
    shared = _shared(owned) if naming == "on_collision" else set()
    public: dict[str, tuple[str, str]] = {}
    collisions = []
    for server, names in owned.items():
        for name in names:
            bare = naming == "none" or (naming == "on_collision" and name not in shared)
            seen = name if bare else prefixed(server, name)
            holder = public.setdefault(seen, (server, name))
            if holder != (server, name):
                collisions.append((seen, holder[0], server))
    return public, collisions


def _shared(owned: Mapping[str, Sequence[str]]) -> set[str]:
    """The names that need a prefix: two servers have them, or they look like a name that was given a prefix."""
    owners: dict[str, set[str]] = {}
    for server, names in owned.items():
        for name in names:
            owners.setdefault(name, set()).add(server)
    shared = {name for name, servers in owners.items() if len(servers) > 1}
    fresh = shared
    while fresh:
        made = {prefixed(server, name) for name in fresh for server in owners[name]}
        fresh = (made & owners.keys()) - shared
        shared |= fresh
    return shared


_SEPARATORS: Final = re.compile(r"[\W_]+")
_GLOB: Final = re.compile(r"(\[!?\]?[^\]]*\]|[*?])")
_SPAN: Final = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_TOGETHER: Final = 100
_FILLERS: Final = "\u115f\u1160"
"""Letters that are not seen."""

_LOOKALIKES: Final = str.maketrans(
    "асеһіјӏорԛѕԁуѵԝхьАВСЕНІЈӀКМОРԚЅТУѴԜХαγικνορυωϳΑΒΕΖΗΙΚΜΝΟΡΤΥΧհյոօսıɑɡ",
    "acehijlopqsdyvwxbABCEHIJIKMOPQSTYVWXayikvopuwjABEZHIKMNOPTYXhjnouiag",
)
"""Letters of other alphabets (Cyrillic, Greek, Armenian, phonetic) that are drawn like those of ASCII."""


class NamePatterns:
    """Names of tools, and glob patterns for them."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """`patterns` as `fnmatch` knows them."""
        self.patterns: Final = tuple(patterns)
        globs = {pattern for pattern in self.patterns if _GLOB.search(pattern)}
        self._names = frozenset(self.patterns) - globs
        self._exact = _any_of(map(translate, globs))
        self._globs = _any_of(map(_loosely, globs))
        self._bare = set(map(_bare, self._names)) - {""}

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def has(self, name: str) -> bool:
        """Whether a name is among them exactly as spelt."""
        return name in self._names or any(each.match(name) for each in self._exact)

    def resembles(self, name: str) -> bool:
        """Whether a name is among them in any spelling.

        Case, the way letters are encoded, alphabets that look alike and invisible signs make no difference, nor do
        separators, be it that they are others, humps, or none. Only next to a wildcard do they count: that is what
        makes `delete_*` another pattern than `delete*`.
        """
        if self.has(name) or _bare(name) in self._bare:
            return True
        return any(each.match(form) for form in _forms(name) for each in self._globs)


def _any_of(expressions: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Some patterns of which one matches where one of many expressions does; one of all would take long to make."""
    each = sorted(expressions)
    return tuple(re.compile("|".join(each[place : place + _TOGETHER])) for place in range(0, len(each), _TOGETHER))


def _visible(text: str) -> str:
    """What is seen of a text, each sign in the one way to write it."""
    if text.isascii() and text.isprintable():
        return text
    plain = unicodedata.normalize("NFKC", text).translate(_LOOKALIKES)
    return "".join(sign for sign in plain if unicodedata.category(sign)[0] != "C" and sign not in _FILLERS)


def _caseless(text: str) -> str:
    return unicodedata.normalize("NFKC", text.casefold())


def _bare(name: str) -> str:
    """A name without its separators; one that is nothing else stays as it is."""
    seen = _caseless(_visible(name))
    return _SEPARATORS.sub("", seen) or seen


def _forms(name: str) -> set[str]:
    """A name with one kind of separator, humps apart or not."""
    seen = _visible(name)
    return {_SEPARATORS.sub("_", _caseless(form)) for form in (seen, _apart(seen))}


def _apart(text: str) -> str:
    """A text with a separator before each hump: `deleteRepo` and `HTTPGet` have one."""
    if text.islower():
        return text
    around = zip(" " + text, text, text[1:] + " ", strict=False)
    return "".join(
        f"_{sign}" if sign.isupper() and before.isalnum() and not (before.isupper() and not after.islower()) else sign
        for before, sign, after in around
    )


def _loosely(pattern: str) -> str:
    """Return a regular expression for the forms of all names that a glob pattern matches."""
    pieces = _GLOB.split(pattern)
    parts = [""]
    for index, piece in enumerate(pieces):
        if piece == "*":
            parts.append("")
        elif index % 2:
            parts[-1] += "." if piece == "?" else _one_of(piece)
        else:
            parts[-1] += _letters(piece, after=index > 0, before=index < len(pieces) - 1)
    first, *others = parts
    stretches = [f"(?>.*?{part})" for part in others[:-1]]  # atomic, so that many stars stay fast
    rest = f"{''.join(stretches)}.*{others[-1]}" if others else ""
    return rf"(?s:_?{first}{rest}_?)\Z"


def _letters(text: str, *, after: bool, before: bool) -> str:
    """An expression for the plain text `after` a wildcard, or `before` one."""
    plain = _SEPARATORS.sub("_", _caseless(_visible(text)))
    lead = "_" if after and plain.startswith("_") else ""
    trail = "_" if before and plain.endswith("_") and not (lead and plain == "_") else ""
    return lead + "_?".join(map(re.escape, plain.replace("_", ""))) + trail


def _one_of(piece: str) -> str:
    """An expression for the signs in brackets, in the forms of names; of those that are ruled out the letters count."""
    excluding = piece.startswith("[!")
    signs = _caseless(_visible(piece[2 if excluding else 1 : -1]))
    found = []
    for span in _SPAN.finditer(signs):
        low, high, one = span.groups()
        if one is None and low <= high:
            found.append(f"{re.escape(low)}-{re.escape(high)}")
        elif one is not None and not _SEPARATORS.fullmatch(one):
            found.append(re.escape(one))
        elif one is not None and not excluding:
            found.append("_")
    if not found:
        return "." if excluding else r"(?!)"
    return f"[{'^' if excluding else ''}{''.join(found)}]"
