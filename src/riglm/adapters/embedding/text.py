"""What of a text is embedded."""

import hashlib
from typing import Final

MOST_CHARACTERS: Final = 32_768
"""No model here reads further; it keeps a text of megabytes from taking seconds to split into tokens."""


def readable(text: str) -> str:
    """The beginning of the text in valid Unicode: halves of surrogate pairs are joined, or replaced when alone."""
    beginning = text[:MOST_CHARACTERS]
    try:
        beginning.encode()
    except UnicodeEncodeError:
        return beginning.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return beginning


def text_hash(text: str) -> str:
    """The SHA-256 of what is embedded of the text, in hexadecimal."""
    return hashlib.sha256(readable(text).encode()).hexdigest()
