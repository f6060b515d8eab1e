"""Vectors without a model: words and pieces of words, hashed into a fixed number of places."""

import hashlib
import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Self

import numpy as np

from riglm.domain.prediction import Vector
from riglm.ports.embedder import EmbedderPort, EmbedderStatus

MAX_CHARACTERS: Final = 32_768
"""No model here reads further; it keeps a text of megabytes from taking seconds to split into tokens."""


def readable(text: str) -> str:
    """The beginning of the text in valid Unicode: halves of surrogate pairs are joined, or replaced when alone."""
    return text[:MAX_CHARACTERS].encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def text_hash(text: str) -> str:
    """The SHA-256 of what is embedded of the text, in hexadecimal."""
    return hashlib.sha256(readable(text).encode()).hexdigest()


STATIC_PROVIDER: Final = "static"
"""The provider's name in the capability signal."""

STATIC_MODEL: Final = "riglm/hash-ngram-256-v1"
"""The identity of these vectors. Every change of a vector needs a new name, so nothing here is shared with others."""

DIMENSIONS: Final = 256
_PAUSE_SECONDS: Final = 0.0001  # pure Python keeps the event loop waiting: it gets its turn between two texts
_GRAM: Final = 4
_WEIGHT_OF_A_GRAM: Final = 0.7
_MIN_STEM: Final = 3
_MAX_WORD_LENGTH: Final = 64
_WORD: Final = re.compile(r"[^\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SUFFIXES: Final = (("ies", "y"), ("ing", ""), ("ers", ""), ("ed", ""), ("er", ""), ("es", ""), ("s", ""))
_STOP_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        "a about all also an and any are as at be been but by can could do does for from had has have how i if in "
        "into is it its me my need of on or our please should so some than that the their them then there these "
        "they this to us use was we were what when where which who will with would you your",
    )
)


class HashingEmbedder(EmbedderPort):
    """256 dimensions from hashed word stems and 4-grams: no model, no load, the same on every machine.

    It sees shared words, not meaning, and is the fallback when no model can be loaded.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    @property
    def model(self) -> str:
        return STATIC_MODEL

    def embed(self, texts: Sequence[str]) -> Vector:
        rows = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        for number, text in enumerate(texts):
            if number:
                time.sleep(_PAUSE_SECONDS)
            _fill(rows[number], readable(text))
        return rows

    def status(self) -> EmbedderStatus:
        return EmbedderStatus(
            provider=STATIC_PROVIDER,
            model=STATIC_MODEL,
            status="ready",
            actual_provider=STATIC_PROVIDER,
            actual_model=STATIC_MODEL,
            dimensions=DIMENSIONS,
            is_fallback_active=False,
            semantic_quality="low",
        )


def _fill(row: Vector, text: str) -> None:
    counts = Counter(feature for word in _words(text) for feature in _features(word))
    for (feature, weight), count in (counts or {("", 1.0): 1}).items():
        place, sign = _place(feature)
        row[place] += sign * weight * (1 + math.log(count))
    length = float(np.linalg.norm(row))
    if length:
        row /= length
    else:  # opposite features met in one place and left nothing
        row[_place("")[0]] = 1.0


def _words(text: str) -> Iterator[str]:
    for word in _WORD.findall(_HUMP.sub(" ", text)):
        lower = word.lower()
        if lower not in _STOP_WORDS:
            yield lower[:_MAX_WORD_LENGTH]


@lru_cache(maxsize=8192)
def _features(word: str) -> tuple[tuple[str, float], ...]:
    framed = f"<{word}>"
    grams = (framed[start : start + _GRAM] for start in range(max(1, len(framed) - _GRAM + 1)))
    return (f"w{_stem(word)}", 1.0), *((f"g{gram}", _WEIGHT_OF_A_GRAM) for gram in grams)


def _stem(word: str) -> str:
    for suffix, instead in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _MIN_STEM:
            return word[: -len(suffix)] + instead
    return word


@lru_cache(maxsize=65_536)
def _place(feature: str) -> tuple[int, int]:
    number = int.from_bytes(blake2b(feature.encode(), digest_size=8).digest(), "little")
    return number % DIMENSIONS, 1 if number >> 32 & 1 else -1
