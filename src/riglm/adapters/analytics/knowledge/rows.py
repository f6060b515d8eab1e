"""Pieces of knowledge as rows, and rows as pieces."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import Table as SqlTable

from riglm.adapters.analytics.arrays import to_bytes
from riglm.adapters.analytics.rows import Row
from riglm.adapters.analytics.tables import kg_entity, kg_observation, thought
from riglm.domain.knowledge.normalising import content_hash
from riglm.domain.knowledge.pieces import Candidate, Embedding, Entity, Observation, Relation, Thought
from riglm.domain.knowledge.provenance import Origin, Table

Piece = Thought | Entity | Observation

TABLES: Final[Mapping[Table, SqlTable]] = {
    Table.THOUGHTS: thought,
    Table.ENTITIES: kg_entity,
    Table.OBSERVATIONS: kg_observation,
}
"""Where the pieces of each table are kept."""

GRAPH_ORIGIN: Final = Origin.TOOL
"""Who writes a graph: a memory server, when a model asks it to."""


def row_of(piece: Piece, changed: int) -> Row:
    """A piece as a row of its table, changed at that tick of the table's clock."""
    common: Row = {
        "id": piece.id,
        "owner": piece.owner,
        "hash": identity(piece),
        "text": piece.text,
        "created_at": piece.created_at,
        "tags": sorted(set(piece.tags)),
        **vector_of(piece.embedding),
        "changed": changed,
    }
    match piece:
        case Thought():
            return {**common, "origin": str(piece.origin), "is_private": piece.is_private}
        case Entity():
            return {**common, "name": piece.name, "kind": piece.kind}
        case Observation():
            return {**common, "entity": piece.entity, "about": content_hash(piece.entity)}


def vector_of(embedding: Embedding | None) -> Row:
    """The columns of a vector."""
    if embedding is None:
        return {"model": None, "dimensions": None, "vector": None}
    vector = to_bytes(embedding.vector)
    return {"model": embedding.model, "dimensions": embedding.dimensions, "vector": vector}


def identity(piece: Piece) -> str:
    """Return the hash that is equal for duplicates of one owner."""
    match piece:
        case Thought():
            return content_hash(piece.text)
        case Entity():
            return content_hash(piece.name)
        case Observation():
            return content_hash(f"{content_hash(piece.entity)} {content_hash(piece.text)}")


def relation_identity(relation: Relation) -> str:
    """The hash of a relation's three parts."""
    return content_hash(" ".join(content_hash(part) for part in (relation.source, relation.kind, relation.target)))


def relation_row(relation: Relation) -> Row:
    """A relation as a row."""
    return {
        "owner": relation.owner,
        "hash": relation_identity(relation),
        "source": relation.source,
        "kind": relation.kind,
        "target": relation.target,
        "source_hash": content_hash(relation.source),
        "target_hash": content_hash(relation.target),
    }


def relation_of(row: Any) -> Relation:
    """A row as a relation."""
    return Relation(owner=row.owner, source=row.source, target=row.target, kind=row.kind)


def candidate(table: Table, row: Any, score: float) -> Candidate:
    """A row as an answer to a question."""
    return Candidate(
        table=table,
        key=str(row.id),
        text=row.text,
        origin=Origin(row.origin) if table is Table.THOUGHTS else GRAPH_ORIGIN,
        created_at=row.created_at,
        score=score,
    )


def _thought(row: Any) -> Thought:
    return Thought(
        id=row.id,
        owner=row.owner,
        text=row.text,
        origin=Origin(row.origin),
        created_at=row.created_at,
        tags=tuple(row.tags),
        is_private=row.is_private,
    )


def entity_of(row: Any) -> Entity:
    """A row as an entity, without its vector."""
    return Entity(
        id=row.id,
        owner=row.owner,
        name=row.name,
        kind=row.kind,
        text=row.text,
        created_at=row.created_at,
        tags=tuple(row.tags),
    )


def _observation(row: Any) -> Observation:
    return Observation(
        id=row.id,
        owner=row.owner,
        entity=row.entity,
        text=row.text,
        created_at=row.created_at,
        tags=tuple(row.tags),
    )


PIECES: Final[Mapping[Table, Callable[[Any], Piece]]] = {
    Table.THOUGHTS: _thought,
    Table.ENTITIES: entity_of,
    Table.OBSERVATIONS: _observation,
}
"""A row of each table as a piece, without its vector."""
