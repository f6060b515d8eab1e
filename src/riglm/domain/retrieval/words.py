"""Words as they are compared: names split, endings cut, words that say nothing left out."""

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from riglm.domain.tool import ToolProfile

MAX_CHARACTERS: Final = 20_000
"""Of one text no more is read: it bounds the time that a text of megabytes takes."""

_MAX_WORD_LENGTH: Final = 64
_MIN_STEM: Final = 3
_ENDINGS: Final = (("ing", ""), ("ies", "y"), ("es", ""), ("ed", ""), ("s", ""))
_HUMP: Final = re.compile(r"([a-z0-9])([A-Z])")
_ACRONYM: Final = re.compile(r"([A-Z]+)([A-Z][a-z])")
_JOINT: Final = re.compile(r"[_\-/.\s]+")
_WORD: Final = re.compile(r"[^\W_]+")
_STOP_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by can do for from has have how i if in into is it its me my of on or our please so "
        "that the their them then there these this to was we what when which who will with would you your",
    )
)


def words(text: str) -> list[str]:
    """The stems of a text's words in order; camelCase and snake_case count as several words."""
    return [stem for _, stem in spelt(text)]


def spelt(text: str) -> Iterator[tuple[str, str]]:
    """Each word that counts as it is spelt, in lower case, and its stem."""
    for word in _WORD.findall(_HUMP.sub(r"\1 \2", text[:MAX_CHARACTERS]).lower()):
        if word not in _STOP_WORDS:
            yield word, _stem(word[:_MAX_WORD_LENGTH])


def split_name(name: str) -> str:
    """A name as one would say it: `getUserByID`, `get_user-by.id` become words with spaces between."""
    humps = _ACRONYM.sub(r"\1 \2", _HUMP.sub(r"\1 \2", name[:MAX_CHARACTERS]))
    return _JOINT.sub(" ", humps).strip()


@lru_cache(maxsize=65_536)
def hashed(stem: str, key: bytes = b"") -> int:
    """Return 32 bits that represent a stem where words must not be stored.

    With a dictionary most stems can be recovered, unless there is a secret `key` of at most 64 bytes.
    """
    said = stem.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(said, digest_size=4, key=key).digest(), "big")


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _MIN_STEM:
            return word[: -len(ending)] + instead
    return word


MAX_REQUEST_LENGTH: Final = 8_000
"""Characters of a context that count."""

MAX_SENTENCES: Final = 16
"""Sentences of a context that count each for itself."""

_MAX_DESCRIPTION_LENGTH: Final = 1_000
_MIN_WORDS: Final = 3
_SENTENCE_END: Final = re.compile(r"(?<=[.!?;])\s+|\n+")


def tool_text(tool: ToolProfile) -> str:
    """What is embedded of a tool: its server, its name in words, and its description."""
    server = split_name(tool.server)
    name = split_name(tool.bare_name or tool.name)
    return f"{server} {name}: {tool.description[:_MAX_DESCRIPTION_LENGTH]}".strip()


def request_texts(text: str) -> tuple[str, ...]:
    """What is embedded of a context: the whole, and when it has several sentences each of them.

    A long request names several needs, and each is found better by the sentence that names it.
    """
    whole = text[:MAX_REQUEST_LENGTH]
    sentences = [part for part in _SENTENCE_END.split(whole) if len(part.split()) >= _MIN_WORDS]
    return (whole, *sentences[:MAX_SENTENCES]) if len(sentences) > 1 else (whole,)
