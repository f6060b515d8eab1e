"""Where knowledge comes from, how trustworthy it is, and how much of it a snippet holds."""

import re
from enum import StrEnum
from typing import Final, NamedTuple


class Origin(StrEnum):
    """Who wrote something: a person, a log of what a person said or did, a tool, or a model."""

    HUMAN = "human"
    LOGGED = "logged"
    TOOL = "tool"
    MODEL = "model"


class TrustTier(StrEnum):
    """How trustworthy a snippet is: a fact, to be used with care, or a guess."""

    GREEN = "green"
    AMBER = "amber"
    RED = "red"


class Table(StrEnum):
    """What keeps a piece of knowledge."""

    THOUGHTS = "thoughts"
    ENTITIES = "kg_entities"
    OBSERVATIONS = "kg_observations"

    @property
    def is_graph(self) -> bool:
        """Whether it is a part of the knowledge graph."""
        return self is not Table.THOUGHTS

    @property
    def source_type(self) -> str:
        """One piece of it, by the name that answers use."""
        return _SOURCE_TYPES[self]

    def public_id(self, key: str) -> str:
        """The id of a piece in answers: unique over all tables."""
        return f"{_LETTERS[self]}:{key}"


_SOURCE_TYPES = {Table.THOUGHTS: "thought", Table.ENTITIES: "kg_entity", Table.OBSERVATIONS: "kg_observation"}
_LETTERS = {Table.THOUGHTS: "t", Table.ENTITIES: "e", Table.OBSERVATIONS: "o"}
_TIERS = {
    Origin.HUMAN: TrustTier.GREEN,
    Origin.LOGGED: TrustTier.GREEN,
    Origin.TOOL: TrustTier.AMBER,
    Origin.MODEL: TrustTier.RED,
}
_DOUBTS = {TrustTier.GREEN: 0, TrustTier.AMBER: 1, TrustTier.RED: 2}


def less_trusted(one: Origin, other: Origin) -> Origin:
    """Of two that a text came from, the one to be trusted less; the first of equals."""
    return max(one, other, key=lambda origin: _DOUBTS[_TIERS[origin]])


def trust_tier(table: Table, origin: Origin) -> TrustTier:
    """Return how trustworthy a piece is: all of the graph, and thoughts by their author."""
    return TrustTier.GREEN if table.is_graph else _TIERS[origin]


MAX: Final = 800
"""Characters that a snippet has at most."""

_MIN_SHARE: Final = 0.75  # 600 of 800 characters
_END: Final = re.compile(r"[.!?](?=\s)")


class TruncatedText(NamedTuple):
    """A piece of a text, and its position in it, in characters; `end` is behind its last one."""

    text: str
    start: int
    end: int


def capped(text: str, longest: int = MAX) -> TruncatedText:
    """The beginning of a text: whole sentences of it, as many as fit.

    A sentence ends with `.`, `!` or `?` before white space. Where whole sentences would be less than three quarters of
    what fits, as behind an abbreviation at the beginning, the text is cut hard.
    """
    if len(text) <= longest:
        return TruncatedText(text, 0, len(text))
    ends = [found.end() for found in _END.finditer(text, 0, longest + 1)]
    end = ends[-1] if ends and ends[-1] >= longest * _MIN_SHARE else longest
    return TruncatedText(text[:end], 0, end)
