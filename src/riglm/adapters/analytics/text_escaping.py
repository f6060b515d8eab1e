"""Text that no database takes, made into text that each does, and back."""

import re
from typing import Final

MAX_STORED_LENGTH: Final = 5
"""Maximum number of stored characters for one character of a text."""

_ESCAPE: Final = "\x1a"
_UNSTORABLE: Final = re.compile(f"[\0{_ESCAPE}\ud800-\udfff]")
_ESCAPED: Final = re.compile(f"{_ESCAPE}([0-9a-f]{{4}})")


def storable(text: str) -> str:
    """The text with NUL and lone surrogates as U+001A and four hexadecimal digits, and U+001A itself likewise."""
    return _UNSTORABLE.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", text)


def original(stored: str) -> str:
    """The text that was stored so."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), stored) if _ESCAPE in stored else stored
