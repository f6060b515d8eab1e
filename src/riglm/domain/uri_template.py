"""Whether a URI could come from a template of resources (RFC 6570), every expression taken for any text."""

import re
from typing import Final

_EXPRESSION: Final = re.compile(r"\{[^}]*\}")


class UriTemplate:
    """A template, taken apart once. Fitting takes time that grows with the URI's length and no faster."""

    __slots__ = ("_first", "_last", "_middle", "_whole", "weight")

    def __init__(self, template: str) -> None:
        """`weight` is how much of the template is fixed, in characters: of two that fit, the heavier says more."""
        first, *rest = _EXPRESSION.split(template)
        self._whole = template
        self._first = first
        self._last = rest[-1] if rest else None
        self._middle = rest[:-1]
        self.weight = len(first) + sum(map(len, rest))

    def fits(self, uri: str) -> bool:
        """Whether the URI could come from the template, or is the template itself."""
        if uri == self._whole:
            return True
        if self._last is None or not uri.startswith(self._first):
            return False
        place, end = len(self._first), len(uri) - len(self._last)
        for literal in self._middle:
            found = uri.find(literal, place, end)
            if found < 0:
                return False
            place = found + len(literal)
        return place <= end and uri.endswith(self._last)
