"""What the tool is given: read, bounded, or refused."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from riglm.application.knowledge.definition import MOST_SNIPPETS
from riglm.application.knowledge.errors import Code, Unanswered
from riglm.domain.knowledge.normalising import is_visible

LONGEST_QUERY: Final = 8_000
"""Characters of a question that are read; a model reads no more."""

MOST_TAGS: Final = 1_000
"""So many tags are looked for at most."""

_KNOWN: Final = ("query", "top_k", "floor", "mix", "include_private", "include_tags", "exclude_tags")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What counts when a question does not say."""

    top_k: int = 10
    floor: float = 0.25
    mix: float = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question within all bounds. `query` is trimmed and not empty."""

    query: str
    top_k: int
    floor: float
    mix: float
    include_private: bool = False
    include_tags: frozenset[str] = frozenset()
    exclude_tags: frozenset[str] = frozenset()


def question(given: Any, defaults: Defaults) -> Question:
    """The question that decoded arguments ask. Numbers out of their bounds are put on the bound.

    Raises:
        Unanswered: `invalid_params`, with words that name the argument.
    """
    if not isinstance(given, Mapping):
        raise _invalid("the arguments are no object that can be read")
    unknown = [str(key) for key in given if key not in _KNOWN]
    if unknown:
        count = "an argument is" if len(unknown) == 1 else f"{len(unknown)} arguments are"
        raise _invalid(f"{count} unknown; known are {', '.join(_KNOWN)}")
    query = given.get("query")
    if not isinstance(query, str) or not is_visible(query):
        raise _invalid("query is to be a text that is not empty")
    return Question(
        query=query.strip()[:LONGEST_QUERY],
        top_k=int(_number(given, "top_k", defaults.top_k, 1, MOST_SNIPPETS, whole=True)),
        floor=_number(given, "floor", defaults.floor, 0, 1),
        mix=_number(given, "mix", defaults.mix, 0, 1),
        include_private=_flag(given, "include_private"),
        include_tags=_tags(given, "include_tags"),
        exclude_tags=_tags(given, "exclude_tags"),
    )


def _number(
    given: Mapping[str, Any], key: str, default: float, least: float, most: float, *, whole: bool = False
) -> float:
    value = given.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _invalid(f"{key} is to be a number from {least:g} to {most:g}")
    if isinstance(value, float) and not math.isfinite(value):
        raise _invalid(f"{key} is to be a number from {least:g} to {most:g}")
    bounded = min(max(value, least), most)  # before anything is reckoned with it: it may have hundreds of digits
    if whole and bounded != int(bounded):
        raise _invalid(f"{key} is to be a whole number from {least:g} to {most:g}")
    return bounded


def _flag(given: Mapping[str, Any], key: str) -> bool:
    value = given.get(key)
    if value is not None and not isinstance(value, bool):
        raise _invalid(f"{key} is to be true or false")
    return bool(value)


def _tags(given: Mapping[str, Any], key: str) -> frozenset[str]:
    value = given.get(key)
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise _invalid(f"{key} is to be a list of texts")
    if len(value) > MOST_TAGS:
        raise _invalid(f"{key} has more than {MOST_TAGS} tags")
    return frozenset(value)


def _invalid(words: str) -> Unanswered:
    return Unanswered(Code.INVALID_PARAMS, words)
