"""Where thoughts and the knowledge graph are kept and asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self, runtime_checkable
from uuid import UUID

from riglm.domain.knowledge import Embedding, Entity, Observation, Relation, SnippetCandidate, Table, Thought


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What of a store may be seen.

    `owner` is the keyed hash of a principal, None for all owners. Pieces need one of `include_tags`, if there are any,
    and none of `exclude_tags`; tags are compared as they are.
    """

    owner: str | None
    include_private: bool = False
    include_tags: frozenset[str] = field(default_factory=frozenset)
    exclude_tags: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeCounts:
    """How much an owner, or all of them, has, and how much of it has no vector of a model."""

    thoughts: int
    entities: int
    observations: int
    relations: int
    without_vector: int


class UpsertCounts(NamedTuple):
    """How many pieces were new, and how many that were there already are others now in any way."""

    new: int
    changed: int


@runtime_checkable
class KnowledgePort(Protocol):
    """Keeps what is known. Methods block; every failure of the store arrives as `AnalyticsUnavailableError`.

    A piece is added once: of what equals a piece of the same owner (the text's hash of a thought, the name of an
    entity, entity and the text's hash of an observation, all of a relation) nothing new is stored, and a vector that it
    lacked is taken. What limits it is kept and added to, see `riglm.domain.knowledge`. Each table is asked by
    itself.
    """

    def __enter__(self) -> Self:
        """Open the store, bringing its schema up to date."""

    def __exit__(self, *_: object) -> None:
        """Close the store."""

    def add_thoughts(self, thoughts: Sequence[Thought]) -> UpsertCounts:
        """Keep thoughts, all or none."""

    def add_entities(self, entities: Sequence[Entity]) -> UpsertCounts:
        """Keep entities, all or none. A text or kind that changed takes the place of the old one."""

    def refresh_entity_texts(self, owner: str, names: Sequence[str]) -> int:
        """Put an owner's entities of these names in words by the relations that there are now, in one step.

        Those whose words are others then wait for a vector of these; how many they were.
        """

    def add_observations(self, observations: Sequence[Observation]) -> UpsertCounts:
        """Keep observations, all or none."""

    def add_relations(self, relations: Sequence[Relation]) -> int:
        """Keep relations, all or none; how many were new."""

    def nearest(self, table: Table, asked: Embedding, scope: Scope, most: int) -> Sequence[SnippetCandidate]:
        """The `most` pieces of a table that are most similar to a vector, the most similar first, exactly.

        Pieces without a vector of that very model and of as many dimensions are not looked at. Private thoughts are
        left out unless the scope includes them.
        """

    def counts(self, owner: str | None, model: str) -> KnowledgeCounts:
        """How much there is."""

    def entities_named(self, owner: str, names: Sequence[str]) -> Sequence[Entity]:
        """An owner's entities with these names, in no order, without their vectors."""

    def relations_of(self, owner: str, names: Sequence[str]) -> Sequence[Relation]:
        """An owner's relations that have an entity of these names at either end, in no order; the ends need not be."""

    def ids(self, table: Table, scope: Scope) -> Sequence[UUID]:
        """All that the scope lets be seen, in no order."""

    def newest(self, table: Table, scope: Scope, most: int) -> Sequence[Thought | Entity | Observation]:
        """The pieces that were made last, newest first, without their vectors."""

    def without_vector(self, table: Table, model: str, most: int) -> Sequence[Thought | Entity | Observation]:
        """Return pieces of all owners without a vector of this model, oldest first."""

    def set_vectors(self, table: Table, embeddings: Sequence[tuple[UUID, Embedding]]) -> None:
        """Store the vectors of pieces, replacing older ones; deleted pieces are left alone."""

    def forget(self, table: Table, ids: Sequence[UUID], owner: str | None) -> int:
        """Delete pieces of an owner, or of all; return how many there were.

        Deleting an entity deletes its observations and relations. The texts of related entities are refreshed without
        it, and need a new vector.
        """

    def forget_owner(self, owner: str | None) -> int:
        """Delete all pieces of an owner, or of all; return how many there were; their relations are deleted too."""
