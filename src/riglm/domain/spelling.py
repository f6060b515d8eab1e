"""Spellings of names: whether two names, or a name and a glob pattern, look the same to a reader."""

import re
import unicodedata
from collections.abc import Iterable
from fnmatch import translate
from typing import Final

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


class Spellings:
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
