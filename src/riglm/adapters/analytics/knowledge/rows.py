"""Pieces of knowledge as rows, and rows as pieces."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, delete, or_, select, update
from sqlalchemy import Table as SqlTable

from riglm.adapters.analytics.rows import DatabaseRow, slices, to_bytes
from riglm.adapters.analytics.tables import kg_entity, kg_observation, kg_relation, thought
from riglm.domain.knowledge.provenance import Origin, Table
from riglm.domain.knowledge.records import (
    Embedding,
    Entity,
    Observation,
    Relation,
    SnippetCandidate,
    Thought,
    content_hash,
    entity_text,
)

Piece = Thought | Entity | Observation

TABLES: Final[Mapping[Table, SqlTable]] = {
    Table.THOUGHTS: thought,
    Table.ENTITIES: kg_entity,
    Table.OBSERVATIONS: kg_observation,
}
"""Where the pieces of each table are kept."""

GRAPH_ORIGIN: Final = Origin.TOOL
"""Who writes a graph: a memory server, when a model asks it to."""


def row_of(piece: Piece, changed: int) -> DatabaseRow:
    """A piece as a row of its table, changed at that tick of the table's clock."""
    common: DatabaseRow = {
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


def vector_of(embedding: Embedding | None) -> DatabaseRow:
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


def relation_row(relation: Relation) -> DatabaseRow:
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


def candidate(table: Table, row: Any, score: float) -> SnippetCandidate:
    """A row as an answer to a question."""
    return SnippetCandidate(
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
        id=row.id, owner=row.owner, entity=row.entity, text=row.text, created_at=row.created_at, tags=tuple(row.tags)
    )


PIECES: Final[Mapping[Table, Callable[[Any], Piece]]] = {
    Table.THOUGHTS: _thought,
    Table.ENTITIES: entity_of,
    Table.OBSERVATIONS: _observation,
}
"""A row of each table as a piece, without its vector."""


def forget_what_hangs_on(connection: Connection, entities: ColumnElement[bool], changed: int) -> None:
    """Remove the observations and relations of entities that are about to go.

    Related entities get a new text, at that tick of the table's clock, and wait for a new vector.
    """
    going: dict[str, set[str]] = defaultdict(set)
    for row in connection.execute(select(kg_entity.c.owner, kg_entity.c.hash).where(entities)):
        going[row.owner].add(row.hash)
    for owner, hashes in going.items():
        neighbours = _ends_of(connection, owner, hashes) - hashes
        for some in slices(sorted(hashes)):
            observed = kg_observation.c
            connection.execute(delete(kg_observation).where(observed.owner == owner, observed.about.in_(some)))
            connection.execute(delete(kg_relation).where(kg_relation.c.owner == owner, _touches(some)))
        refresh_entity_texts(connection, owner, neighbours, changed)


def refresh_entity_texts(connection: Connection, owner: str, entities: Collection[str], changed: int) -> int:
    """Write the text of an owner's entities, by hash, from their current relations; return how many changed."""
    told = 0
    columns = kg_entity.c
    mine = select(columns.id, columns.hash, columns.name, columns.kind, columns.text).where(columns.owner == owner)
    for some in slices(sorted(entities)):
        related: dict[str, list[Relation]] = defaultdict(list)
        for source, target, relation in _relations(connection, owner, some):
            for end in {source, target}:
                related[end].append(relation)
        for row in connection.execute(mine.where(columns.hash.in_(some))).all():
            text = entity_text(row.name, row.kind, related[row.hash])
            if text != row.text:
                fresh = {"text": text, "changed": changed, **vector_of(None)}
                connection.execute(update(kg_entity).where(columns.id == row.id).values(**fresh))
                told += 1
    return told


def _ends_of(connection: Connection, owner: str, entities: Collection[str]) -> set[str]:
    found = (_relations(connection, owner, some) for some in slices(sorted(entities)))
    return {end for some in found for source, target, _ in some for end in (source, target)}


def _relations(connection: Connection, owner: str, entities: Collection[str]) -> Iterator[tuple[str, str, Relation]]:
    """Return the hashed ends of each relation of these entities, and the relation."""
    query = select(kg_relation).where(kg_relation.c.owner == owner, _touches(entities))
    return ((row.source_hash, row.target_hash, relation_of(row)) for row in connection.execute(query).all())


def _touches(entities: Collection[str]) -> ColumnElement[bool]:
    return or_(kg_relation.c.source_hash.in_(entities), kg_relation.c.target_hash.in_(entities))
