"""What is deleted with an entity, and how related entities get a new text."""

from collections import defaultdict
from collections.abc import Collection, Iterator

from sqlalchemy import ColumnElement, Connection, delete, or_, select, update

from riglm.adapters.analytics.knowledge.rows import relation_of, vector_of
from riglm.adapters.analytics.lookups import slices
from riglm.adapters.analytics.tables import kg_entity, kg_observation, kg_relation
from riglm.domain.knowledge.pieces import Relation
from riglm.domain.knowledge.wording import entity_text


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
        tell_anew(connection, owner, neighbours, changed)


def tell_anew(connection: Connection, owner: str, entities: Collection[str], changed: int) -> int:
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
