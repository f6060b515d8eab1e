"""The vectors of one table and model in memory, with what decides who may see a piece."""

import json
from collections import defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING, Final
from uuid import UUID

import numpy as np
from sqlalchemy import Connection, Table, Text, false, select, type_coerce

from riglm.adapters.analytics.rows import count, from_bytes
from riglm.adapters.analytics.tables import knowledge_clock
from riglm.domain.knowledge import Embedding
from riglm.ports.knowledge import Scope

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from riglm.domain.prediction import Vector

_ROW_BATCH_SIZE: Final = 1_000

TableVersion = tuple[int, int]
"""When a table's pieces were changed last, and when some were removed, by the table's own clock."""


def get_table_version(connection: Connection, table: Table) -> TableVersion:
    """Return the version of a table; (0, 0) if it never had a piece."""
    clock = knowledge_clock.c
    row = connection.execute(select(clock.changed, clock.removed).where(clock.piece == table.name)).one_or_none()
    return (0, 0) if row is None else (row.changed, row.removed)


class KnowledgeIndex:
    """All pieces of a table with a vector of one model, as they were at one version of the table."""

    def __init__(self, connection: Connection, table: Table, model: str, dimensions: int) -> None:
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
        query = select(
            columns.id,
            columns.owner,
            type_coerce(columns.tags, Text).label("tags"),
            (columns.is_private if "is_private" in columns else false()).label("hidden"),
            columns.vector,
        )
        ordered = query.where(fits).order_by(columns.changed, columns.id).limit(room)
        for rows in connection.execute(ordered, execution_options={"yield_per": _ROW_BATCH_SIZE}).partitions():
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
