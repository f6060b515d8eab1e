"""Where knowledge comes from, and how trustworthy it is."""

from enum import StrEnum


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
