"""Hands out what is stored, a part at a time."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Column, ColumnElement, Connection, RowMapping, Table, and_, literal, select, tuple_

from riglm.adapters.analytics.database import SqlStore, reads
from riglm.adapters.analytics.rows import NameTuple, count, from_bytes, toolsets
from riglm.adapters.analytics.tables import (
    cooccurrence,
    exposure,
    invocation,
    learned_pair,
    override,
    session,
    warm_set,
)
from riglm.ports.maintenance import ExportRow, RecordKind


def _with_hidden(row: dict[str, Any]) -> dict[str, Any]:
    """What was hidden, in place of what was available."""
    available = row.pop("available")
    return {**row, "hidden": sorted(set(available) - set(row["shown"]))}


def _with_vector(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "vector": from_bytes(row["vector"], row["dimensions"]).tolist()}


@dataclass(frozen=True, slots=True)
class _Source:
    """Where records of a kind are, and in which order they come.

    `order` identifies every row; its first column is the time of the event. `lists` are the columns that refer to
    lists of tools; `convert` converts rows with values that do not fit directly.
    """

    table: Table
    order: tuple[Column[Any], ...]
    lists: tuple[str, ...] = ()
    convert: Callable[[dict[str, Any]], dict[str, Any]] = dict


_SOURCES: Final = {
    RecordKind.SESSIONS: _Source(session, (session.c.started_at, session.c.id), lists=("tools_available",)),
    RecordKind.INVOCATIONS: _Source(invocation, (invocation.c.timestamp, invocation.c.id)),
    RecordKind.EXPOSURES: _Source(
        exposure, (exposure.c.timestamp, exposure.c.id), lists=("shown", "available"), convert=_with_hidden
    ),
    RecordKind.COOCCURRENCES: _Source(
        cooccurrence, (cooccurrence.c.last_updated, cooccurrence.c.tool_a, cooccurrence.c.tool_b)
    ),
    RecordKind.LEARNED_PAIRS: _Source(
        learned_pair, (learned_pair.c.updated_at, learned_pair.c.id), convert=_with_vector
    ),
    RecordKind.OVERRIDES: _Source(override, (override.c.created_at, override.c.id)),
    RecordKind.WARM_SETS: _Source(
        warm_set, (warm_set.c.created_at, warm_set.c.principal, warm_set.c.client, warm_set.c.profile)
    ),
}


class SqlExport(SqlStore):
    """Export of what is stored; part of `SqlAnalytics`."""

    @reads
    def count_rows(self, connection: Connection, kind: RecordKind, since: float = 0.0) -> int:
        source = _SOURCES[kind]
        return count(connection, source.table, source.order[0] >= since)

    def export(self, kind: RecordKind, since: float = 0.0, at_once: int = 1000) -> Iterator[Sequence[ExportRow]]:
        source = _SOURCES[kind]
        chosen: ColumnElement[bool] = source.order[0] >= since
        while True:
            query = select(source.table).where(chosen).order_by(*source.order).limit(at_once)
            with self._database.reading() as connection:
                found = connection.execute(query).mappings().all()
                lists = toolsets(connection, (row[column] for row in found for column in source.lists))
            if found:
                yield [source.convert(_plain(row, source.lists, lists)) for row in found]
            if len(found) < at_once:
                return
            chosen = _after(source, found[-1])


def _plain(row: RowMapping, columns: Collection[str], lists: Mapping[UUID, NameTuple]) -> dict[str, Any]:
    """A row in plain values, with the names of tools in place of what refers to a list of them."""
    return {name: list(lists[value]) if name in columns else _plain_value(value) for name, value in row.items()}


def _plain_value(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


def _after(source: _Source, last: RowMapping) -> ColumnElement[bool]:
    """Return the rows that follow `last` in the order of the source; the time is also compared alone, for its index."""
    later = tuple_(*source.order) > tuple_(*(literal(last[column.name], column.type) for column in source.order))
    return and_(source.order[0] >= last[source.order[0].name], later)
