"""Everyday utility tools: tools that sessions of any subject tend to use, and the words of requests that imply them.

Tools are recognized by their names and descriptions alone, without a model. The patterns are in `everyday_kinds.toml`.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from riglm.domain.retrieval.words import split_name

MAX_CATALOG: Final = 1_000
"""Maximum number of tools among which a request implies one; in a larger catalog too many tools are of one kind."""

MAX_IMPLIED: Final = 5
"""Maximum number of tools that one request implies."""

_ELSEWHERE: Final = 0.4
"""Factor for a name that also names a product or a subject, such as `github-get_file_contents`."""

_DESCRIBED: Final = 0.7
"""Factor for a tool that is recognized by its description only."""

_MIN_FILE_KINDS: Final = 3
_MAX_NAME_LENGTH: Final = 128
_MAX_DESCRIPTION_LENGTH: Final = 200
_MAX_REQUEST_LENGTH: Final = 8_000


class _Kind(NamedTuple):
    """A kind of tool, with the fields of `everyday_kinds.toml`.

    `re` compiles a pattern at its first use and keeps it. Compiling all of them would add 30 ms to each start.
    """

    weight: float
    of_files: bool
    name: str
    description: str
    request: str


class _Kinds(NamedTuple):
    """All kinds, the numbers of those that each word occurs in, and the pattern of general words."""

    kinds: Sequence[_Kind]
    by_word: Mapping[str, Sequence[int]]
    general: str


@cache
def _load() -> _Kinds:
    import tomllib  # noqa: PLC0415  # a process that lists no tools does not load it

    data = tomllib.loads(Path(__file__).with_name("everyday_kinds.toml").read_text("utf-8"))

    def pattern(alternatives: Sequence[str]) -> str:
        return re.sub(r"\{([a-z]+)\}", lambda found: str(data["fragments"][found[1]]), "|".join(alternatives))

    kinds = [
        _Kind(
            weight=kind["weight"],
            of_files=kind.get("of_files", False),
            name=rf"(?P<rest>(?:.*? )??)(?P<core>{pattern(kind['name'])})",
            description=pattern(kind["description"]),
            request=pattern(kind["request"]),
        )
        for kind in data["kinds"]
    ]
    by_word: dict[str, list[int]] = defaultdict(list)
    for number, kind in enumerate(data["kinds"]):
        for word in kind["words"].split():
            by_word[word].append(number)
    return _Kinds(kinds, by_word, pattern(data["general"]))


def everyday_weights(tools: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Return for each tool name how likely the tool is an everyday utility, from 0 to 1.

    `tools` are pairs of a name, with or without a server prefix, and a description. A server that reads, writes
    and lists files counts as general, regardless of its name.
    """
    return {name: weight for (name, _), (_, weight) in zip(tools, _recognize(tools), strict=True)}


class ImpliedTools:
    """Finds the everyday tools that a request needs and does not mention: a path implies reading or writing a file."""

    def __init__(self, tools: Sequence[tuple[str, str]]) -> None:
        """Recognize the tools. In a catalog beyond `MAX_CATALOG`, requests imply none."""
        self._best: dict[int, int] = {}
        weights: dict[int, float] = {}
        for place, (kind, weight) in enumerate(_recognize(tools) if len(tools) <= MAX_CATALOG else ()):
            if weight > weights.get(kind, 0.0):
                self._best[kind], weights[kind] = place, weight

    def find(self, request: str) -> list[int]:
        """Return the places of the implied tools, at most one of each kind, the most general first."""
        kinds, start = _load().kinds, request[:_MAX_REQUEST_LENGTH]
        return [
            place for kind, place in sorted(self._best.items()) if re.search(kinds[kind].request, start, re.IGNORECASE)
        ]


def _recognize(tools: Sequence[tuple[str, str]]) -> Iterator[tuple[int, float]]:
    """Yield the kind of each tool and how surely the tool is of it, times the weight of the kind."""
    kinds, _, general_words = _load()
    matches = [_match_name(name[-_MAX_NAME_LENGTH:]) for name, _ in tools]
    file_kinds: dict[str, set[int]] = defaultdict(set)
    for kind, rest, _ in filter(None, matches):
        file_kinds[rest] |= {kind} if kinds[kind].of_files else set()

    @cache
    def is_general(rest: str) -> bool:
        has_files = len(file_kinds[rest]) >= _MIN_FILE_KINDS
        return has_files or all(re.fullmatch(general_words, word) for word in rest.split())

    for match, (_, description) in zip(matches, tools, strict=True):
        if match is None:
            yield _match_description(description[:_MAX_DESCRIPTION_LENGTH])
            continue
        kind, rest, core = match
        factor = 1.0 if is_general(rest) else _ELSEWHERE if " " in core else 0.0
        yield kind, round(factor * kinds[kind].weight, 2)


@lru_cache(maxsize=8_192)
def _match_name(name: str) -> tuple[int, str, str] | None:
    """Return the kind of tool, the words before the matched ones, and the matched ones."""
    text = split_name(name).lower()
    for number, kind in _find_candidates(text):
        if match := re.fullmatch(kind.name, text):
            return number, match["rest"], match["core"]
    return None


@lru_cache(maxsize=8_192)
def _match_description(description: str) -> tuple[int, float]:
    start = " ".join(description.lower().split())
    for number, kind in _find_candidates(start):
        if re.match(kind.description, start):
            return number, round(_DESCRIBED * kind.weight, 2)
    return 0, 0.0


def _find_candidates(text: str) -> list[tuple[int, _Kind]]:
    """Return the kinds whose patterns may match a name or a description, with their numbers."""
    kinds, by_word, _ = _load()
    words = by_word.keys() & re.findall(r"\w+", text)
    return [(number, kinds[number]) for number in sorted({number for word in words for number in by_word[word]})]
