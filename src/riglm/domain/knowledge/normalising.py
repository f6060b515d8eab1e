"""One spelling for texts that say the same, and the hash by which equal texts are recognised."""

import re
import unicodedata
from typing import Final

from blake3 import blake3

_SPACES: Final = re.compile(r"\s+")
_UNSEEN: Final = frozenset({"Cc", "Cf"})
"""Unicode's categories of control characters and of those without a width."""

_BLANK: Final = _UNSEEN | {"Zs", "Zl", "Zp", "Mn", "Me"}
_FILLERS: Final = frozenset("\u115f\u1160\u2800")  # letters and a symbol without a shape


def normalised(text: str) -> str:
    """A text without the differences that do not matter.

    In this order: Unicode's form NFKC, lower case, every run of white space one space, none at the ends, and no control
    characters or characters without a width.
    """
    folded = unicodedata.normalize("NFKC", text).lower()
    spaced = _SPACES.sub(" ", folded).strip()
    if spaced.isprintable():  # nearly every text: nothing of these categories can be in it
        return spaced
    return "".join(letter for letter in spaced if unicodedata.category(letter) not in _UNSEEN)


def is_visible(text: str) -> bool:
    """Whether anything of a text can be seen: it is more than white space, marks without a letter, and the like."""
    return any(
        unicodedata.category(letter) not in _BLANK and letter not in _FILLERS
        for letter in unicodedata.normalize("NFKC", text)
    )


def content_hash(text: str) -> str:
    """Return BLAKE3 of the normalised text, 256 bits in hex: stable on every machine."""
    return blake3(normalised(text).encode("utf-8", "surrogatepass")).hexdigest()
