"""Knowledge kept in the memory of this process."""

import threading
from collections.abc import Sequence
from dataclasses import fields, replace
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

import numpy as np

from riglm.adapters.analytics.knowledge.rows import GRAPH_ORIGIN, Piece, identity, relation_identity
from riglm.domain.knowledge.merging import limited
from riglm.domain.knowledge.normalising import content_hash, normalised
from riglm.domain.knowledge.pieces import Candidate, Embedding, Entity, Observation, Relation, Thought
from riglm.domain.knowledge.provenance import Table
from riglm.domain.knowledge.wording import entity_text
from riglm.ports.knowledge import Added, KnowledgeCounts, KnowledgePort, Scope

_Kept = TypeVar("_Kept", Thought, Entity, Observation)


class InMemoryKnowledge(KnowledgePort):
    """Keeps knowledge until the process ends, and compares a question with all of it; several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[Table, dict[tuple[str, str], Piece]] = {table: {} for table in Table}
        self._relations: dict[tuple[str, str], Relation] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What is kept stays."""

    def add_thoughts(self, thoughts: Sequence[Thought]) -> Added:
        """Keep thoughts."""
        return self._add(Table.THOUGHTS, thoughts)

    def add_entities(self, entities: Sequence[Entity]) -> Added:
        """Keep entities."""
        return self._add(Table.ENTITIES, entities)

    def tell_anew(self, owner: str, names: Sequence[str]) -> int:
        """Write the text of entities from their current relations; return how many changed."""
        with self._lock:
            return sum(self._tell_anew(owner, name) for name in {normalised(name) for name in names})

    def add_observations(self, observations: Sequence[Observation]) -> Added:
        """Keep observations."""
        return self._add(Table.OBSERVATIONS, observations)

    def add_relations(self, relations: Sequence[Relation]) -> int:
        """Keep relations; how many were new."""
        with self._lock:
            before = len(self._relations)
            for relation in relations:
                self._relations.setdefault((relation.owner, relation_identity(relation)), relation)
            return len(self._relations) - before

    def nearest(self, table: Table, asked: Embedding, scope: Scope, most: int) -> Sequence[Candidate]:
        """The pieces of a table that are most similar to a vector, the most similar first, exactly."""
        with self._lock:
            pieces = [piece for piece in self._tables[table].values() if _seen(piece, scope) and _fits(piece, asked)]
        vectors = [piece.embedding.vector for piece in pieces if piece.embedding is not None]
        if not vectors or most < 1:
            return []
        scores = np.stack(vectors) @ asked.vector
        best = np.argsort(-scores, kind="stable")[:most]
        return [_candidate(table, pieces[place], float(scores[place])) for place in best]

    def counts(self, owner: str | None, model: str) -> KnowledgeCounts:
        """How much there is."""
        with self._lock:
            found = {
                table: [piece for piece in kept.values() if owner in (None, piece.owner)]
                for table, kept in self._tables.items()
            }
            return KnowledgeCounts(
                thoughts=len(found[Table.THOUGHTS]),
                entities=len(found[Table.ENTITIES]),
                observations=len(found[Table.OBSERVATIONS]),
                relations=sum(owner in (None, relation.owner) for relation in self._relations.values()),
                without_vector=sum(_lacks(piece, model) for pieces in found.values() for piece in pieces),
            )

    def entities_named(self, owner: str, names: Sequence[str]) -> Sequence[Entity]:
        """An owner's entities with these names, without their vectors."""
        wanted = {(owner, content_hash(name)) for name in names}
        with self._lock:
            kept = self._tables[Table.ENTITIES]
            found = [piece for key in wanted if isinstance(piece := kept.get(key), Entity)]
        return [replace(entity, embedding=None) for entity in found]

    def relations_of(self, owner: str, names: Sequence[str]) -> Sequence[Relation]:
        """An owner's relations that have an entity of these names at either end."""
        wanted = {normalised(name) for name in names}
        with self._lock:
            return [each for each in self._relations.values() if each.owner == owner and wanted & _ends(each)]

    def ids(self, table: Table, scope: Scope) -> Sequence[UUID]:
        """All that the scope lets be seen."""
        with self._lock:
            return [piece.id for piece in self._tables[table].values() if _seen(piece, scope)]

    def newest(self, table: Table, scope: Scope, most: int) -> Sequence[Piece]:
        """The pieces that were made last, newest first, without their vectors."""
        with self._lock:
            found = [piece for piece in self._tables[table].values() if _seen(piece, scope)]
        found.sort(key=lambda piece: (piece.created_at, piece.id), reverse=True)
        return [replace(piece, embedding=None) for piece in found[:most]]

    def without_vector(self, table: Table, model: str, most: int) -> Sequence[Piece]:
        """Pieces that no vector of this model is known of, oldest first."""
        with self._lock:
            found = [piece for piece in self._tables[table].values() if _lacks(piece, model)]
        found.sort(key=lambda piece: (piece.created_at, piece.id))
        return [replace(piece, embedding=None) for piece in found[:most]]

    def set_vectors(self, table: Table, embeddings: Sequence[tuple[UUID, Embedding]]) -> None:
        """Give pieces their vectors."""
        given = dict(embeddings)
        with self._lock:
            kept = self._tables[table]
            for key, piece in list(kept.items()):
                if piece.id in given:
                    kept[key] = replace(piece, embedding=given[piece.id])

    def forget(self, table: Table, ids: Sequence[UUID], owner: str | None) -> int:
        """Remove pieces; how many there were. An entity takes along what is known of it, and its name elsewhere."""
        wanted = set(ids)
        with self._lock:
            kept = self._tables[table]
            gone = {key: each for key, each in kept.items() if each.id in wanted and owner in (None, each.owner)}
            for key, piece in gone.items():
                del kept[key]
                if isinstance(piece, Entity):
                    self._forget_what_hangs_on(piece)
            return len(gone)

    def forget_owner(self, owner: str | None) -> int:
        """Remove all that is an owner's: how many pieces there were."""
        gone = 0
        with self._lock:
            for kept in self._tables.values():
                mine = [key for key in kept if owner in (None, key[0])]
                gone += len(mine)
                for key in mine:
                    del kept[key]
            for key in [key for key in self._relations if owner in (None, key[0])]:
                del self._relations[key]
        return gone

    def _forget_what_hangs_on(self, entity: Entity) -> None:
        observations = self._tables[Table.OBSERVATIONS]
        for key, piece in list(observations.items()):
            if isinstance(piece, Observation) and (piece.owner, normalised(piece.entity)) == (
                entity.owner,
                normalised(entity.name),
            ):
                del observations[key]
        name = normalised(entity.name)
        neighbours: set[str] = set()
        for key, relation in list(self._relations.items()):
            if relation.owner == entity.owner and name in _ends(relation):
                del self._relations[key]
                neighbours |= _ends(relation)
        for neighbour in neighbours - {name}:
            self._tell_anew(entity.owner, neighbour)

    def _tell_anew(self, owner: str, name: str) -> bool:
        """Put an entity in words once more; whether they are others."""
        entities, key = self._tables[Table.ENTITIES], (owner, content_hash(name))
        entity = entities.get(key)
        if not isinstance(entity, Entity):
            return False
        related = [each for each in self._relations.values() if each.owner == owner and name in _ends(each)]
        text = entity_text(entity.name, entity.kind, related)
        if text == entity.text:
            return False
        entities[key] = replace(entity, text=text, embedding=None)
        return True

    def _add(self, table: Table, pieces: Sequence[_Kept]) -> Added:
        changed = set()
        with self._lock:
            kept = self._tables[table]
            earlier = dict(kept)
            for piece in pieces:
                key = (piece.owner, identity(piece))
                old = kept.get(key)
                kept[key] = _updated(old, piece) if old is not None else piece
                if key in earlier and not _is_same(kept[key], earlier[key]):
                    changed.add(key)
            return Added(len(kept) - len(earlier), len(changed))


def _ends(relation: Relation) -> set[str]:
    return {normalised(relation.source), normalised(relation.target)}


def _updated(old: Piece, new: Piece) -> Piece:
    """A piece that was added before, with what is new in it."""
    is_newer = new.embedding is not None and (old.embedding is None or old.embedding.model != new.embedding.model)
    embedding = new.embedding if is_newer else old.embedding
    match old, new:
        case Thought(), Thought():
            new = limited(new, old)
            old = replace(old, tags=new.tags, origin=new.origin, is_private=new.is_private)
        case Entity(), Entity():
            if (old.text, old.kind) != (new.text, new.kind):
                embedding = new.embedding
            old = replace(old, tags=limited(new, old).tags, text=new.text, kind=new.kind)
        case Observation(), Observation():
            old = replace(old, tags=limited(new, old).tags)
    return replace(old, embedding=embedding)


def _is_same(one: Piece, other: Piece) -> bool:
    return all(getattr(one, field.name) == getattr(other, field.name) for field in fields(one))


def _seen(piece: Piece, scope: Scope) -> bool:
    if scope.owner not in (None, piece.owner):
        return False
    if isinstance(piece, Thought) and piece.is_private and not scope.include_private:
        return False
    tags = frozenset(piece.tags)
    return (not scope.include_tags or bool(tags & scope.include_tags)) and not tags & scope.exclude_tags


def _fits(piece: Piece, asked: Embedding) -> bool:
    mine = piece.embedding
    return mine is not None and (mine.model, mine.dimensions) == (asked.model, asked.dimensions)


def _lacks(piece: Piece, model: str) -> bool:
    return piece.embedding is None or piece.embedding.model != model


def _candidate(table: Table, piece: Piece, score: float) -> Candidate:
    origin = piece.origin if isinstance(piece, Thought) else GRAPH_ORIGIN
    return Candidate(
        table=table, key=str(piece.id), text=piece.text, origin=origin, created_at=piece.created_at, score=score
    )
