"""Cuts a text to the length of a snippet, at the end of a sentence where there is one."""

import re
from typing import Final, NamedTuple

LONGEST: Final = 800
"""Characters that a snippet has at most."""

_LEAST_SHARE: Final = 0.75  # 600 of 800 characters
_END: Final = re.compile(r"[.!?](?=\s)")


class Capped(NamedTuple):
    """A piece of a text, and its position in it, in characters; `end` is behind its last one."""

    text: str
    start: int
    end: int


def capped(text: str, longest: int = LONGEST) -> Capped:
    """The beginning of a text: whole sentences of it, as many as fit.

    A sentence ends with `.`, `!` or `?` before white space. Where whole sentences would be less than three quarters of
    what fits, as behind an abbreviation at the beginning, the text is cut hard.
    """
    if len(text) <= longest:
        return Capped(text, 0, len(text))
    ends = [found.end() for found in _END.finditer(text, 0, longest + 1)]
    end = ends[-1] if ends and ends[-1] >= longest * _LEAST_SHARE else longest
    return Capped(text[:end], 0, end)
