"""Errors of glob patterns for names of tools that cannot match any."""

import re
from fnmatch import translate
from typing import Final

from riglm.domain.naming import SEPARATOR

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
