"""The vectors of one table and model in memory, with what decides who may see a piece; kept current from the table."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import numpy as np
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    LargeBinary,
    Table,
    Text,
    case,
    false,
    literal,
    select,
    true,
    tuple_,
    type_coerce,
)

from riglm.adapters.analytics.rows import count, from_bytes
from riglm.adapters.analytics.tables import CompactUuid, knowledge_clock
from riglm.domain.knowledge.exact_search import Codes
from riglm.ports.knowledge import Scope

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from riglm.domain.prediction import Vector

_ROW_BATCH_SIZE: Final = 1_000
_NOWHERE: Final = UUID(int=0)
_BYTES: Final = 16
_TAGS_KEPT: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """When a table's pieces were changed last, and when some were removed: in microseconds, later for each change."""

    changed: int = 0
    removed: int = 0

    def is_before(self, other: "TableVersion") -> bool:
        """Whether it went back from there, as in a database that was restored from an older backup."""
        return self.changed < other.changed or self.removed < other.removed


class Index:
    """Every piece of a table with a vector of one model, by position; deleted pieces keep theirs, dead."""

    def __init__(self, table: Table, model: str, dimensions: int) -> None:
        self._table = table
        self._model = model
        self._dimensions = dimensions
        self._seen = TableVersion()
        self._last: tuple[int, UUID] = (0, _NOWHERE)
        self._begin(0)

    @property
    def size_bytes(self) -> int:
        """What the codes and flags hold in memory."""
        return (
            self._codes.size_bytes + self._ids.nbytes + self._owners.nbytes + self._alive.nbytes + self._hidden.nbytes
        )

    def __len__(self) -> int:
        return len(self._codes)

    def follow(self, connection: Connection) -> None:
        """Take what changed in the table since it was last followed."""
        clock = knowledge_clock.c
        query = select(clock.changed, clock.removed).where(clock.piece == self._table.name)
        row = connection.execute(query).one_or_none()
        now = TableVersion() if row is None else TableVersion(changed=row.changed, removed=row.removed)
        if now == self._seen:
            return
        is_mostly_dead = np.count_nonzero(self._alive[: len(self._codes)]) * 2 < len(self._codes)
        if is_mostly_dead or not len(self._codes) or now.is_before(self._seen):
            self._last = (0, _NOWHERE)
            self._seen = TableVersion(removed=now.removed)
            self._begin(count(connection, self._table))
        if now.changed != self._seen.changed:
            self._take_changes(connection)
        if now.removed != self._seen.removed:
            self._drop_removed(connection)
        self._seen = now

    def nearest(
        self, asked: "Vector", scope: Scope, most: int, exact: "Callable[[Sequence[UUID]], Vector]"
    ) -> list[tuple[UUID, float]]:
        """The ids and similarities of the pieces that are nearest, among those that the scope lets be seen."""

        def vectors(positions: Sequence[int]) -> "Vector":
            return exact([self._id(position) for position in positions])

        found = self._codes.nearest(asked, most, vectors, self._wanted(scope))
        return [(self._id(position), score) for position, score in found]

    def _begin(self, room: int) -> None:
        self._codes = Codes(self._dimensions, room)
        self._ids: NDArray[np.bytes_] = np.empty(room, f"S{_BYTES}")
        self._owners: NDArray[np.int32] = np.empty(room, np.int32)
        self._alive: NDArray[np.bool_] = np.empty(room, np.bool_)
        self._hidden: NDArray[np.bool_] = np.empty(room, np.bool_)
        self._numbers: dict[str, int] = {}
        self._tagged: dict[str, set[int]] = {}
        self._written: list[str] = []

    def _take_changes(self, connection: Connection) -> None:
        columns = self._table.c
        fits = (columns.model == self._model) & (columns.dimensions == self._dimensions)
        is_first = not len(self._codes)
        changed, last = self._last
        after = tuple_(literal(changed, BigInteger), literal(last, CompactUuid))
        query = (
            select(
                columns.changed,
                _raw_id(connection, self._table).label("id"),
                columns.owner,
                type_coerce(columns.tags, Text).label("tags"),
                (columns.is_private if "is_private" in columns else false()).label("hidden"),
                case((fits, columns.vector)).label("vector"),
            )
            .where(fits if is_first else true(), tuple_(columns.changed, columns.id) > after)
            .order_by(columns.changed, columns.id)
        )
        # One statement: of many, PostgreSQL may look through all rows for each, until it has analysed the table.
        for rows in connection.execute(query, execution_options={"yield_per": _ROW_BATCH_SIZE}).partitions():
            self._take(rows, is_first=is_first)
            self._last = (rows[-1].changed, UUID(bytes=_key(rows[-1].id)))

    def _take(self, rows: Sequence[Any], *, is_first: bool) -> None:
        places = [-1] * len(rows) if is_first else self._places([_key(row.id) for row in rows])
        for row, place in zip(rows, places, strict=True):
            if place >= 0:
                self._alive[place] = row.vector is not None
                self._unmark(place)
                self._mark([place], [row])
                if row.vector is not None:
                    self._codes.replace(place, from_bytes(row.vector, self._dimensions))
        new = [row for row, place in zip(rows, places, strict=True) if place < 0 and row.vector is not None]
        if new:
            self._add(new)

    def _add(self, rows: Sequence[Any]) -> None:
        start = len(self._codes)
        self._codes.add(from_bytes(b"".join(row.vector for row in rows), self._dimensions, len(rows)))
        end = start + len(rows)
        if end > len(self._ids):
            room = max(end, start + start // 2)
            self._ids, self._owners = _longer(self._ids, room), _longer(self._owners, room)
            self._alive, self._hidden = _longer(self._alive, room), _longer(self._hidden, room)
        self._ids[start:end] = [_key(row.id) for row in rows]
        self._written += [""] * len(rows)
        self._alive[start:end] = True
        self._mark(range(start, end), rows)

    def _mark(self, places: Sequence[int], rows: Sequence[Any]) -> None:
        """Note who may see pieces."""
        numbers = self._numbers
        self._owners[places] = [numbers.setdefault(row.owner, len(numbers)) for row in rows]
        self._hidden[places] = [row.hidden for row in rows]
        for place, row in zip(places, rows, strict=True):
            self._written[place] = sys.intern(row.tags)  # most are those of many others
            for tag in _tags(row.tags):
                self._tagged.setdefault(tag, set()).add(place)

    def _unmark(self, place: int) -> None:
        for tag in _tags(self._written[place]):
            places = self._tagged.get(tag, set())
            places.discard(place)
            if not places:
                self._tagged.pop(tag, None)

    def _drop_removed(self, connection: Connection) -> None:
        ids = connection.execute(select(_raw_id(connection, self._table))).scalars()
        there = np.array([_key(id_) for id_ in ids], f"S{_BYTES}")
        count = len(self._codes)
        self._alive[:count] &= np.isin(self._ids[:count], there)

    def _places(self, ids: Sequence[bytes]) -> list[int]:
        """The position of each piece, -1 where it has none."""
        known = self._ids[: len(self._codes)]
        if not len(known):
            return [-1] * len(ids)
        order = np.argsort(known)
        wanted = np.array(ids, f"S{_BYTES}")
        places = order[np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)]
        return [int(place) if known[place] == want else -1 for place, want in zip(places, wanted, strict=True)]

    def _id(self, position: int) -> UUID:
        return UUID(bytes=bytes(self._ids[position]).ljust(_BYTES, b"\0"))  # numpy drops zeros at the end

    def _wanted(self, scope: Scope) -> "NDArray[np.bool_]":
        count = len(self._codes)
        wanted = self._alive[:count].copy()
        if scope.owner is not None:
            wanted &= self._owners[:count] == self._numbers.get(scope.owner, -1)
        if not scope.include_private:
            wanted &= ~self._hidden[:count]
        if scope.include_tags:
            wanted &= self._with_any(scope.include_tags, count)
        if scope.exclude_tags:
            wanted &= ~self._with_any(scope.exclude_tags, count)
        return wanted

    def _with_any(self, tags: frozenset[str], count: int) -> "NDArray[np.bool_]":
        found = np.zeros(count, np.bool_)
        places = set().union(*(self._tagged.get(tag, set()) for tag in tags))
        found[list(places)] = True
        return found


def _raw_id(connection: Connection, table: Table) -> ColumnElement[Any]:
    """The id as the driver gives it: of very many of them objects need not be made."""
    return type_coerce(table.c.id, LargeBinary) if connection.dialect.name == "sqlite" else table.c.id


def _key(id_: UUID | bytes) -> bytes:
    return id_ if isinstance(id_, bytes) else id_.bytes


@lru_cache(_TAGS_KEPT)
def _tags(written: str) -> tuple[str, ...]:
    return tuple(json.loads(written))


def _longer(array: Any, room: int) -> Any:
    longer = np.empty(room, array.dtype)
    longer[: len(array)] = array
    return longer
