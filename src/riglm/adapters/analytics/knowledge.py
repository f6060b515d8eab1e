"""Knowledge kept in a SQL database, with its vectors in memory."""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from uuid import UUID

import numpy as np
import sqlalchemy as sa

from riglm.adapters.analytics.database import Database, SqlStore, reads
from riglm.adapters.analytics.engine import TIMEOUT_SECONDS
from riglm.adapters.analytics.prediction_store import MAX_STORED_LENGTH
from riglm.adapters.analytics.rows import DatabaseRow, count, from_bytes, insert_into, rows_in, slices, to_bytes
from riglm.adapters.analytics.tables import SafeText, kg_entity, kg_observation, kg_relation, knowledge_clock, thought
from riglm.domain.knowledge import (
    MAX_SNIPPET_LENGTH,
    Embedding,
    Entity,
    Observation,
    Origin,
    Relation,
    SnippetCandidate,
    Table,
    Thought,
    content_hash,
    entity_text,
    limited,
)
from riglm.ports.knowledge import KnowledgeCounts, KnowledgePort, Scope, UpsertCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from riglm.domain.prediction import Vector

Piece = Thought | Entity | Observation

TABLES: Final[Mapping[Table, sa.Table]] = {
    Table.THOUGHTS: thought,
    Table.ENTITIES: kg_entity,
    Table.OBSERVATIONS: kg_observation,
}
"""Where the pieces of each table are kept."""

PIECES: Final[Mapping[Table, type[Piece]]] = {
    Table.THOUGHTS: Thought,
    Table.ENTITIES: Entity,
    Table.OBSERVATIONS: Observation,
}

GRAPH_ORIGIN: Final = Origin.TOOL
"""Who writes a graph: a memory server, when a model asks it to."""

_ROW_BATCH_SIZE: Final = 200  # a statement holds up the other writers of the database
_READ_BATCH_SIZE: Final = 1_000
_TEXT_READ: Final = MAX_STORED_LENGTH * (MAX_SNIPPET_LENGTH + 1)  # cutting reads the character behind the last
_TAKEN: Final = ("text", "kind", "model", "dimensions", "vector")
_LIMITS: Final = ("tags", "origin", "is_private")
_Kept = TypeVar("_Kept", bound=Piece)


TableVersion = tuple[int, int]
"""When a table's pieces were changed last, and when some were removed, by the table's own clock."""


def get_table_version(connection: sa.Connection, table: sa.Table) -> TableVersion:
    """Return the version of a table; (0, 0) if it never had a piece."""
    clock = knowledge_clock.c
    row = connection.execute(sa.select(clock.changed, clock.removed).where(clock.piece == table.name)).one_or_none()
    return (0, 0) if row is None else (row.changed, row.removed)


class KnowledgeIndex:
    """All pieces of a table with a vector of one model, as they were at one version of the table."""

    def __init__(self, connection: sa.Connection, table: sa.Table, model: str, dimensions: int) -> None:
        """Read the pieces. A reader that comes meanwhile to a later version reads them again."""
        self.version = get_table_version(connection, table)
        self.model = model
        columns = table.c
        fits = (columns.model == model) & (columns.dimensions == dimensions)
        room = count(connection, table, fits)
        self._vectors: Vector = np.empty((room, dimensions), np.float32)
        self._ids: list[UUID] = []
        self._tagged: dict[str, list[int]] = defaultdict(list)
        self._owner_numbers: dict[str, int] = {}
        owners: list[int] = []
        hidden: list[bool] = []
        query = sa.select(
            columns.id,
            columns.owner,
            sa.type_coerce(columns.tags, sa.Text).label("tags"),
            (columns.is_private if "is_private" in columns else sa.false()).label("hidden"),
            columns.vector,
        )
        ordered = query.where(fits).order_by(columns.changed, columns.id).limit(room)
        for rows in connection.execute(ordered, execution_options={"yield_per": _READ_BATCH_SIZE}).partitions():
            start = len(self._ids)
            read = from_bytes(b"".join(row.vector for row in rows), dimensions, len(rows))
            self._vectors[start : start + len(rows)] = read
            for place, row in enumerate(rows, start):
                for tag in json.loads(row.tags) if row.tags != "[]" else ():
                    self._tagged[tag].append(place)
            self._ids += [row.id for row in rows]
            numbers = self._owner_numbers
            owners += [numbers.setdefault(row.owner, len(numbers)) for row in rows]
            hidden += [bool(row.hidden) for row in rows]
        self._vectors = self._vectors[: len(self._ids)]
        self._owners = np.array(owners, np.int32)
        self._hidden = np.array(hidden, np.bool_)

    @property
    def dimensions(self) -> int:
        """How many numbers each vector has."""
        return int(self._vectors.shape[1])

    def nearest(self, asked: Embedding, scope: Scope, most: int) -> list[tuple[UUID, float]]:
        """Return the ids and cosine similarities of the pieces that are nearest and in the scope, best first."""
        places = np.flatnonzero(self._in_scope(scope))
        if not len(places) or most < 1:
            return []
        scores = (self._vectors @ asked.vector)[places]
        if len(places) > most:
            bar = np.partition(scores, len(scores) - most)[len(scores) - most]
            places, scores = places[scores >= bar], scores[scores >= bar]
        best = np.lexsort((places, -scores))[:most]
        return [(self._ids[places[each]], float(scores[each])) for each in best]

    def _in_scope(self, scope: Scope) -> "NDArray[np.bool_]":
        wanted = np.ones(len(self._ids), np.bool_)
        if scope.owner is not None:
            wanted &= self._owners == self._owner_numbers.get(scope.owner, -1)
        if not scope.include_private:
            wanted &= ~self._hidden
        if scope.include_tags:
            wanted &= self._has_any(scope.include_tags)
        return wanted & ~self._has_any(scope.exclude_tags)

    def _has_any(self, tags: Collection[str]) -> "NDArray[np.bool_]":
        found = np.zeros(len(self._ids), np.bool_)
        for tag in tags:
            found[self._tagged.get(tag, [])] = True
        return found


class SqlKnowledge(SqlStore, KnowledgePort):
    """Keeps knowledge in the SQLite or PostgreSQL database at a URL; entering it connects and upgrades the schema.

    The vectors of each table are held in memory, read at the first question and again after a change. One object may
    serve several threads.
    """

    def __init__(self, url: str, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self._database = Database(url, timeout=timeout)
        self._indexing = threading.Lock()
        self._indexes: dict[Table, KnowledgeIndex] = {}
        self._indexed: sa.Pool | None = None

    def __enter__(self) -> Self:
        self._database.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()
        self._indexes.clear()

    def add_thoughts(self, thoughts: Sequence[Thought]) -> UpsertCounts:
        return self._add(Table.THOUGHTS, thoughts)

    def add_entities(self, entities: Sequence[Entity]) -> UpsertCounts:
        return self._add(Table.ENTITIES, entities)

    def refresh_entity_texts(self, owner: str, names: Sequence[str]) -> int:
        with self._database.writing() as connection:
            changed = _tick(connection, kg_entity)
            return _refresh_texts(connection, owner, {content_hash(name) for name in names}, changed)

    def add_observations(self, observations: Sequence[Observation]) -> UpsertCounts:
        return self._add(Table.OBSERVATIONS, observations)

    def add_relations(self, relations: Sequence[Relation]) -> int:
        rows = [_relation_row(each) for each in relations]
        with self._database.writing() as connection:
            insert = insert_into(connection, kg_relation).on_conflict_do_nothing().returning(kg_relation.c.hash)
            return sum(len(connection.execute(insert.values(list(some))).all()) for some in slices(rows))

    @reads
    def nearest(
        self, connection: sa.Connection, table: Table, asked: Embedding, scope: Scope, most: int
    ) -> Sequence[SnippetCandidate]:
        found = self._index(connection, table, asked).nearest(asked, scope, most)
        rows = _rows(connection, TABLES[table], [id_ for id_, _ in found])
        return [
            SnippetCandidate(
                table=table,
                key=str(id_),
                text=rows[id_].text,
                origin=Origin(rows[id_].origin) if table is Table.THOUGHTS else GRAPH_ORIGIN,
                created_at=rows[id_].created_at,
                score=score,
            )
            for id_, score in found
            if id_ in rows
        ]

    @reads
    def counts(self, connection: sa.Connection, owner: str | None, model: str) -> KnowledgeCounts:
        return KnowledgeCounts(
            thoughts=count(connection, thought, _of(thought, owner)),
            entities=count(connection, kg_entity, _of(kg_entity, owner)),
            observations=count(connection, kg_observation, _of(kg_observation, owner)),
            relations=count(connection, kg_relation, _of(kg_relation, owner)),
            without_vector=sum(
                count(connection, kept, _of(kept, owner), _lacks_vector(kept, model)) for kept in TABLES.values()
            ),
        )

    @reads
    def entities_named(self, connection: sa.Connection, owner: str, names: Sequence[str]) -> Sequence[Entity]:
        query = sa.select(*_without_vector(kg_entity)).where(kg_entity.c.owner == owner)
        found = rows_in(connection, query, kg_entity.c.hash, map(content_hash, names))
        return [_to_piece(Entity, row) for row in found]

    @reads
    def relations_of(self, connection: sa.Connection, owner: str, names: Sequence[str]) -> Sequence[Relation]:
        hashes = [content_hash(name) for name in names]
        query = sa.select(kg_relation).where(kg_relation.c.owner == owner)
        ends = (kg_relation.c.source_hash, kg_relation.c.target_hash)
        found = (row for end in ends for row in rows_in(connection, query, end, hashes))
        return list({row.hash: _to_relation(row) for row in found}.values())

    @reads
    def ids(self, connection: sa.Connection, table: Table, scope: Scope) -> Sequence[UUID]:
        columns = TABLES[table].c
        rows = connection.execute(_seen(sa.select(columns.id, columns.tags), table, scope))
        return [row.id for row in rows if _is_tagged(row, scope)]

    @reads
    def newest(self, connection: sa.Connection, table: Table, scope: Scope, most: int) -> Sequence[Piece]:
        kept = TABLES[table]
        query = _seen(sa.select(*_without_vector(kept)), table, scope)
        rows = connection.execute(query.order_by(kept.c.created_at.desc(), kept.c.id.desc()))
        tagged = (row for row in rows.yield_per(_ROW_BATCH_SIZE) if _is_tagged(row, scope))
        return [_to_piece(PIECES[table], row) for row in islice(tagged, most)]

    @reads
    def without_vector(self, connection: sa.Connection, table: Table, model: str, most: int) -> Sequence[Piece]:
        kept = TABLES[table]
        query = sa.select(*_without_vector(kept)).where(_lacks_vector(kept, model))
        rows = connection.execute(query.order_by(kept.c.created_at, kept.c.id).limit(most))
        return [_to_piece(PIECES[table], row) for row in rows]

    def set_vectors(self, table: Table, embeddings: Sequence[tuple[UUID, Embedding]]) -> None:
        kept = TABLES[table]
        change = sa.update(kept).where(kept.c.id == sa.bindparam("piece"))
        with self._database.writing() as connection:
            changed = _tick(connection, kept)
            rows = [{"piece": id_, **_vector(each), "changed": changed} for id_, each in embeddings]
            for some in slices(rows):
                connection.execute(change, list(some))

    def forget(self, table: Table, ids: Sequence[UUID], owner: str | None) -> int:
        kept = TABLES[table]
        gone = 0
        with self._database.writing() as connection:
            changed = _tick(connection, kept, removed=True)
            if table is Table.ENTITIES:
                _tick(connection, kg_observation, removed=True)
            for some in slices(ids):
                mine = kept.c.id.in_(some) & _of(kept, owner)
                if table is Table.ENTITIES:
                    _forget_dependents(connection, mine, changed)
                gone += connection.execute(sa.delete(kept).where(mine)).rowcount
        return gone

    def forget_owner(self, owner: str | None) -> int:
        gone = 0
        with self._database.writing() as connection:
            for kept in TABLES.values():
                gone += connection.execute(sa.delete(kept).where(_of(kept, owner))).rowcount
                _tick(connection, kept, removed=True)
            connection.execute(sa.delete(kg_relation).where(_of(kg_relation, owner)))
        return gone

    def _add(self, table: Table, pieces: Sequence[_Kept]) -> UpsertCounts:
        if not pieces:
            return UpsertCounts(0, 0)
        kept = TABLES[table]
        with self._database.writing() as connection:
            before = count(connection, kept)
            changed = _tick(connection, kept)
            for some in slices(pieces, _ROW_BATCH_SIZE):
                rows = [_to_row(piece, changed) for piece in _limited(connection, table, some)]
                connection.execute(_put(connection, kept), rows)
            new = count(connection, kept) - before
            return UpsertCounts(new, count(connection, kept, kept.c.changed == changed) - new)

    def _index(self, connection: sa.Connection, table: Table, asked: Embedding) -> KnowledgeIndex:
        """Return the index of a table for a model, read again if the table has changed or the file was replaced."""
        with self._indexing:
            if connection.engine.pool is not self._indexed:
                self._indexes.clear()
                self._indexed = connection.engine.pool
            index, kept = self._indexes.get(table), TABLES[table]
            if (
                index is None
                or (index.model, index.dimensions) != (asked.model, asked.dimensions)
                or index.version != get_table_version(connection, kept)
            ):
                self._indexes.pop(table, None)  # two at a time would take twice the memory
                index = self._indexes[table] = KnowledgeIndex(connection, kept, asked.model, asked.dimensions)
            return index


def _limited(connection: sa.Connection, table: Table, pieces: Sequence[_Kept]) -> list[_Kept]:
    """Pieces, with what limits those of them that are there already, or came before in the same few."""
    kept = TABLES[table]
    keys = [_identity(piece) for piece in pieces]
    query = sa.select(*_without_vector(kept)).where(
        kept.c.owner.in_({piece.owner for piece in pieces}), kept.c.hash.in_(set(keys))
    )
    known: dict[tuple[str, str], Any] = {
        (row.owner, row.hash): _to_piece(PIECES[table], row) for row in connection.execute(query)
    }
    found = []
    for hash_, piece in zip(keys, pieces, strict=True):
        old = known.get((piece.owner, hash_))
        known[piece.owner, hash_] = now = piece if old is None else limited(piece, old)
        found.append(now)
    return found


def _put(connection: sa.Connection, table: sa.Table) -> Any:
    """Adds a piece; of one that is there already it takes what is new. What limits it is in it already."""
    insert = insert_into(connection, table)
    new, old = insert.excluded, table.c
    has_vector = new.model.is_not(None)
    is_newer = has_vector & sa.or_(old.model.is_(None), old.model != new.model)
    is_other = sa.or_(
        *(new[name] != old[name] for name in ("text", "kind") if name in old and table is kg_entity), is_newer
    )
    taken: dict[str, Any] = {name: sa.case((is_other, new[name]), else_=old[name]) for name in _TAKEN if name in old}
    limits = [name for name in _LIMITS if name in old]
    taken |= {name: new[name] for name in (*limits, "changed")}
    is_limited = (new[name] != old[name] for name in limits)
    return insert.on_conflict_do_update(
        index_elements=["owner", "hash"], set_=taken, where=sa.or_(is_other, *is_limited)
    )


def _tick(connection: sa.Connection, table: sa.Table, *, removed: bool = False) -> int:
    """Advance a table's clock and return it. The transaction excludes all others until it ends.

    It is the time of day, in microseconds, and never goes back: what is written after a backup was restored is later
    than all that was there before.
    """
    now = time.time_ns() // 1_000
    insert = insert_into(connection, knowledge_clock).values(
        piece=table.name, changed=now, removed=now if removed else 0
    )
    columns = knowledge_clock.c
    further: dict[str, Any] = {"changed": _later(columns.changed, now)}
    if removed:
        further["removed"] = _later(columns.removed, now)
    ticking = insert.on_conflict_do_update(index_elements=["piece"], set_=further).returning(columns.changed)
    return int(connection.execute(ticking).scalar_one())


def _later(shown: sa.ColumnElement[int], now: int) -> sa.ColumnElement[int]:
    return sa.case((shown < now, now), else_=shown + 1)


def _rows(connection: sa.Connection, table: sa.Table, ids: Sequence[UUID]) -> dict[UUID, Any]:
    """What answers are made of; of a text no more than a snippet is cut from, however many megabytes it has."""
    beginning = sa.func.substr(table.c.text, 1, _TEXT_READ, type_=SafeText).label("text")
    wanted = [column for column in (table.c.id, table.c.get("origin"), table.c.created_at) if column is not None]
    return {row.id: row for row in rows_in(connection, sa.select(*wanted, beginning), table.c.id, ids)}


def _without_vector(table: sa.Table) -> list[Any]:
    return [column for column in table.c if column.name != "vector"]


def _seen(query: sa.Select[Any], table: Table, scope: Scope) -> sa.Select[Any]:
    """Those rows of a query that the scope lets be seen, tags aside."""
    query = query.where(_of(TABLES[table], scope.owner))
    return query.where(~thought.c.is_private) if table is Table.THOUGHTS and not scope.include_private else query


def _is_tagged(row: Any, scope: Scope) -> bool:
    tags = frozenset(row.tags)
    return (not scope.include_tags or bool(tags & scope.include_tags)) and not tags & scope.exclude_tags


def _of(table: sa.Table, owner: str | None) -> sa.ColumnElement[bool]:
    return sa.true() if owner is None else table.c.owner == owner


def _lacks_vector(table: sa.Table, model: str) -> sa.ColumnElement[bool]:
    return sa.or_(table.c.model.is_(None), table.c.model != model)


def _to_row(piece: Piece, changed: int) -> DatabaseRow:
    """Return a piece as a row of its table, changed at that tick of the table's clock."""
    row: DatabaseRow = {field.name: getattr(piece, field.name) for field in fields(piece) if field.name != "embedding"}
    row |= {"hash": _identity(piece), "tags": sorted(set(piece.tags)), "changed": changed, **_vector(piece.embedding)}
    if isinstance(piece, Thought):
        row["origin"] = str(piece.origin)
    elif isinstance(piece, Observation):
        row["about"] = content_hash(piece.entity)
    return row


def _vector(embedding: Embedding | None) -> DatabaseRow:
    if embedding is None:
        return {"model": None, "dimensions": None, "vector": None}
    vector = to_bytes(embedding.vector)
    return {"model": embedding.model, "dimensions": embedding.dimensions, "vector": vector}


def _identity(piece: Piece) -> str:
    """Return the hash that is equal for duplicates of one owner."""
    match piece:
        case Thought():
            return content_hash(piece.text)
        case Entity():
            return content_hash(piece.name)
        case Observation():
            return content_hash(f"{content_hash(piece.entity)} {content_hash(piece.text)}")


def _relation_row(relation: Relation) -> DatabaseRow:
    source, kind, target = (content_hash(part) for part in (relation.source, relation.kind, relation.target))
    return {
        **asdict(relation),
        "hash": content_hash(f"{source} {kind} {target}"),
        "source_hash": source,
        "target_hash": target,
    }


def _to_relation(row: Any) -> Relation:
    return Relation(owner=row.owner, source=row.source, target=row.target, kind=row.kind)


def _to_piece(kind: type[_Kept], row: Any) -> _Kept:
    """Return a row as a piece, without its vector."""
    values = {field.name: getattr(row, field.name) for field in fields(kind) if field.name != "embedding"}
    values["tags"] = tuple(row.tags)
    if kind is Thought:
        values["origin"] = Origin(row.origin)
    return kind(**values)


def _forget_dependents(connection: sa.Connection, entities: sa.ColumnElement[bool], changed: int) -> None:
    """Remove the observations and relations of entities that are about to go.

    Related entities get a new text, at that tick of the table's clock, and wait for a new vector.
    """
    going: dict[str, set[str]] = defaultdict(set)
    for row in connection.execute(sa.select(kg_entity.c.owner, kg_entity.c.hash).where(entities)):
        going[row.owner].add(row.hash)
    for owner, hashes in going.items():
        neighbours = _ends_of(connection, owner, hashes) - hashes
        for some in slices(sorted(hashes)):
            observed = kg_observation.c
            connection.execute(sa.delete(kg_observation).where(observed.owner == owner, observed.about.in_(some)))
            connection.execute(sa.delete(kg_relation).where(kg_relation.c.owner == owner, _touches(some)))
        _refresh_texts(connection, owner, neighbours, changed)


def _refresh_texts(connection: sa.Connection, owner: str, entities: Collection[str], changed: int) -> int:
    """Write the text of an owner's entities, by hash, from their current relations; return how many changed."""
    told = 0
    columns = kg_entity.c
    mine = sa.select(columns.id, columns.hash, columns.name, columns.kind, columns.text).where(columns.owner == owner)
    for some in slices(sorted(entities)):
        related: dict[str, list[Relation]] = defaultdict(list)
        for source, target, relation in _relations(connection, owner, some):
            for end in {source, target}:
                related[end].append(relation)
        for row in connection.execute(mine.where(columns.hash.in_(some))).all():
            text = entity_text(row.name, row.kind, related[row.hash])
            if text != row.text:
                fresh = {"text": text, "changed": changed, **_vector(None)}
                connection.execute(sa.update(kg_entity).where(columns.id == row.id).values(**fresh))
                told += 1
    return told


def _ends_of(connection: sa.Connection, owner: str, entities: Collection[str]) -> set[str]:
    found = (_relations(connection, owner, some) for some in slices(sorted(entities)))
    return {end for some in found for source, target, _ in some for end in (source, target)}


def _relations(connection: sa.Connection, owner: str, entities: Collection[str]) -> Iterator[tuple[str, str, Relation]]:
    """Return the hashed ends of each relation of these entities, and the relation."""
    query = sa.select(kg_relation).where(kg_relation.c.owner == owner, _touches(entities))
    return ((row.source_hash, row.target_hash, _to_relation(row)) for row in connection.execute(query).all())


def _touches(entities: Collection[str]) -> sa.ColumnElement[bool]:
    return sa.or_(kg_relation.c.source_hash.in_(entities), kg_relation.c.target_hash.in_(entities))
