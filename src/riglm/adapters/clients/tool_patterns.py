"""Whether a pattern over names, as clients' rules have them, is about one server among others."""

import re
from typing import Final

_NOBODY: Final = "4-name-that-no-server-has"


def names_server(pattern: str, name: str) -> bool:
    """Whether a regular expression means a server of this name, and does not mean all of them.

    One that cannot be read means whom it names.
    """
    try:
        expression = re.compile(pattern)
    except re.error:
        return re.search(rf"(?<![A-Za-z0-9-]){re.escape(name)}(?![A-Za-z0-9-])", pattern) is not None
    return expression.fullmatch(name) is not None and expression.fullmatch(_NOBODY) is None


def begins_with_server(wildcard: str, prefix: str) -> bool:
    """Whether names that a wildcard means begin with a server's prefix, and not those of all servers do.

    Only the part before the first `*` or `?` counts.
    """
    literal = re.split(r"[*?]", wildcard, maxsplit=1)[0]
    is_open = literal != wildcard
    return bool(literal) and (literal.startswith(prefix) or (is_open and prefix.startswith(literal)))
