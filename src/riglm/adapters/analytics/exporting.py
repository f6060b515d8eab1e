"""Hands out what is stored, a part at a time."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Column, ColumnElement, Connection, RowMapping, Table, and_, func, literal, select, tuple_

from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.rows import NameTuple, from_bytes, toolsets
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


def _as_it_is(row: dict[str, Any]) -> dict[str, Any]:
    return row


def _with_hidden(row: dict[str, Any]) -> dict[str, Any]:
    """What was hidden, in place of what was available."""
    available = row.pop("available")
    return {**row, "hidden": sorted(set(available) - set(row["shown"]))}


def _with_vector(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "vector": from_bytes(row["vector"], row["dimensions"]).tolist()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Where records of a kind are, and in which order they come.

    `time` is the column with the time of the event, the first of `order`, which identifies every row.
    `lists` are the columns that refer to lists of tools; `convert` converts rows with values that do not fit directly.
    """

    table: Table
    time: Column[float]
    order: tuple[Column[Any], ...]
    lists: tuple[str, ...] = ()
    convert: Callable[[dict[str, Any]], dict[str, Any]] = _as_it_is


def count_rows(connection: Connection, kind: RecordKind, since: float) -> int:
    """How many records of this kind there are from the given time on."""
    source = _SOURCES[kind]
    query = select(func.count()).select_from(source.table).where(source.time >= since)
    return int(connection.execute(query).scalar_one())


def export(database: Database, kind: RecordKind, since: float, at_once: int) -> Iterator[Sequence[ExportRow]]:
    """Yield all records of this kind from the given time on, in parts, each read by a separate query."""
    source = _SOURCES[kind]
    chosen: ColumnElement[bool] = source.time >= since
    while True:
        query = select(source.table).where(chosen).order_by(*source.order).limit(at_once)
        with database.reading() as connection:
            found = connection.execute(query).mappings().all()
            lists = _lists(connection, source, found)
        if found:
            yield [source.convert(_plain(row, source.lists, lists)) for row in found]
        if len(found) < at_once:
            return
        chosen = _after(source, found[-1])


_SOURCES: Final = {
    RecordKind.SESSIONS: _Source(
        table=session, time=session.c.started_at, order=(session.c.started_at, session.c.id), lists=("tools_available",)
    ),
    RecordKind.INVOCATIONS: _Source(
        table=invocation, time=invocation.c.timestamp, order=(invocation.c.timestamp, invocation.c.id)
    ),
    RecordKind.EXPOSURES: _Source(
        table=exposure,
        time=exposure.c.timestamp,
        order=(exposure.c.timestamp, exposure.c.id),
        convert=_with_hidden,
        lists=("shown", "available"),
    ),
    RecordKind.COOCCURRENCES: _Source(
        table=cooccurrence,
        time=cooccurrence.c.last_updated,
        order=(cooccurrence.c.last_updated, cooccurrence.c.tool_a, cooccurrence.c.tool_b),
    ),
    RecordKind.LEARNED_PAIRS: _Source(
        table=learned_pair,
        time=learned_pair.c.updated_at,
        order=(learned_pair.c.updated_at, learned_pair.c.id),
        convert=_with_vector,
    ),
    RecordKind.OVERRIDES: _Source(
        table=override, time=override.c.created_at, order=(override.c.created_at, override.c.id)
    ),
    RecordKind.WARM_SETS: _Source(
        table=warm_set,
        time=warm_set.c.created_at,
        order=(warm_set.c.created_at, warm_set.c.principal, warm_set.c.client, warm_set.c.profile),
    ),
}


def _lists(connection: Connection, source: _Source, found: Sequence[RowMapping]) -> Mapping[UUID, NameTuple]:
    return toolsets(connection, (row[column] for row in found for column in source.lists)) if source.lists else {}


def _plain(row: RowMapping, columns: Collection[str], lists: Mapping[UUID, NameTuple]) -> dict[str, Any]:
    """A row in plain values, with the names of tools in place of what refers to a list of them."""
    return {name: list(lists[value]) if name in columns else _plain_value(value) for name, value in row.items()}


def _plain_value(value: Any) -> Any:
    match value:
        case UUID():
            return str(value)
        case tuple():
            return list(value)
    return value


def _after(source: _Source, last: RowMapping) -> ColumnElement[bool]:
    """Return the rows that follow `last` in the order of the source; the time is also compared alone, for its index."""
    later = tuple_(*source.order) > tuple_(*(literal(last[column.name], column.type) for column in source.order))
    return and_(source.time >= last[source.time.name], later)
