"""What people who look at riglm ask, in SQL that stays quick while the store fills."""

import math
from collections.abc import Mapping, MutableMapping, Sequence
from statistics import mode
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Connection,
    Integer,
    case,
    cast,
    func,
    literal,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.types import NullType

from riglm.adapters.analytics import queries, rows
from riglm.adapters.analytics.database import SqlStore, reads_quickly
from riglm.adapters.analytics.queries import of_servers, ran
from riglm.adapters.analytics.rows import slices
from riglm.adapters.analytics.tables import (
    cooccurrence,
    exposure,
    invocation,
    learned_pair,
    session,
    toolset,
    training_update,
)
from riglm.domain.cooccurrence import ToolCooccurrence
from riglm.domain.exposure import ANSWER_SURFACES, Exposure
from riglm.domain.invocation import DiscoveryMethod, ToolInvocation
from riglm.domain.prediction import Vector
from riglm.ports.dashboard import SessionKey, SessionSummary, ToolStatistics, UsageCounts

_PAIRS_PER_TOOL: Final = 200
"""Maximum number of pairs that are read for each tool of a map."""

_MAX_SIZES: Final = 100_000

RawId = UUID | bytes
"""An id as the database's driver gives it: to make objects of very many takes longer than to count them."""

Sizes = MutableMapping[RawId, int]
"""Number of tool names by list id, for lists that were read before; the lists of an id never change."""

_is_list: Final = exposure.c.surface.not_in(sorted(ANSWER_SURFACES))


class SqlDashboardQueries(SqlStore):
    """Queries of the dashboard; part of `SqlAnalytics`."""

    def __init__(self) -> None:
        self._sizes: dict[RawId, int] = {}

    @reads_quickly
    def list_sessions(
        self, connection: Connection, limit: int = 100, *, active_only: bool = False, before: SessionKey | None = None
    ) -> Sequence[SessionSummary]:
        started, id_ = session.c.started_at, session.c.id
        chosen: list[ColumnElement[bool]] = [session.c.ended_at.is_(None)] if active_only else []
        if before is not None:
            chosen += [started <= before.started_at, or_(started < before.started_at, id_ < before.id)]
        return queries.latest_sessions(connection, limit, *chosen)

    @reads_quickly
    def session_of(self, connection: Connection, session_id: UUID) -> SessionSummary | None:
        return next(iter(queries.latest_sessions(connection, 1, session.c.id == session_id)), None)

    @reads_quickly
    def count_sessions(self, connection: Connection, since: float = 0.0) -> tuple[int, int]:
        count = select(func.count()).select_from(session)
        open_ = connection.execute(count.where(session.c.ended_at.is_(None))).scalar_one()
        return open_, connection.execute(count.where(*_since(session.c.started_at, since))).scalar_one()

    @reads_quickly
    def earliest_call(self, connection: Connection) -> float:
        earliest = connection.execute(select(func.min(invocation.c.timestamp))).scalar_one()
        return math.inf if earliest is None else earliest

    @reads_quickly
    def list_invocations(
        self, connection: Connection, session_id: UUID, limit: int | None = None
    ) -> Sequence[ToolInvocation]:
        columns = invocation.c
        query = select(invocation).where(columns.session_id == session_id)
        latest = query.order_by(columns.sequence_number.desc(), columns.id.desc()).limit(limit)
        return [rows.invocation_from(row) for row in connection.execute(latest).mappings()][::-1]

    @reads_quickly
    def latest_exposures(self, connection: Connection, session_id: UUID, most: int) -> Sequence[Exposure]:
        return queries.latest_exposures(connection, [session_id], most)

    @reads_quickly
    def tools_known(self, connection: Connection, since: float = 0.0) -> Sequence[ToolStatistics]:
        lists = select(exposure.c.available).where(_is_list, *_since(exposure.c.timestamp, since)).distinct()
        return queries.with_never_used(connection, since, connection.execute(lists).scalars())

    @reads_quickly
    def tool_totals(self, connection: Connection, tool: str, since: float = 0.0) -> ToolStatistics | None:
        return queries.tool_totals(connection, tool, since)

    @reads_quickly
    def usage(
        self, connection: Connection, since: float, until: float, spans: int = 1, tool: str | None = None
    ) -> Sequence[UsageCounts]:
        if len(self._sizes) > _MAX_SIZES:
            self._sizes.clear()
        calls = _calls(connection, since, until, spans, tool)
        lists = _lists(connection, since, until, spans, self._sizes)
        return [UsageCounts(**calls.get(span, {}), **lists.get(span, {})) for span in range(spans)]

    @reads_quickly
    def top_cooccurrences(self, connection: Connection, most_tools: int) -> Sequence[ToolCooccurrence]:
        a, b = cooccurrence.c.tool_a, cooccurrence.c.tool_b
        order = (cooccurrence.c.count.desc(), a, b)
        tools: dict[str, None] = {}
        for pair in connection.execute(select(a, b).order_by(*order).limit(most_tools * _PAIRS_PER_TOOL)):
            if len(tools.keys() | set(pair)) > most_tools:
                break
            tools |= dict.fromkeys(pair)
        among = select(cooccurrence).where(a.in_(list(tools)), b.in_(list(tools))).order_by(*order)
        return [ToolCooccurrence(**row) for row in connection.execute(among).mappings()]

    @reads_quickly
    def context_vectors(self, connection: Connection, session_ids: Sequence[UUID]) -> Mapping[UUID, Vector]:
        import numpy as np  # noqa: PLC0415  # a store that is never asked for vectors need not load it

        pair, taught = learned_pair.c, training_update.c
        query = (
            select(taught.session_id, pair.model, pair.vector, pair.dimensions)
            .join_from(training_update, learned_pair, taught.pair_id == pair.id)
            .where(pair.dimensions > 0)
            .order_by(taught.session_id, taught.pair_id)
        )
        found = [
            row for some in slices(session_ids) for row in connection.execute(query.where(taught.session_id.in_(some)))
        ]
        model = mode(row.model for row in found) if found else ""
        vectors: dict[UUID, list[Vector]] = {}
        for row in found:
            if row.model == model:
                vectors.setdefault(row.session_id, []).append(rows.from_bytes(row.vector, row.dimensions))
        return {id_: np.mean(each, axis=0, dtype=np.float32) for id_, each in vectors.items()}


def _calls(
    connection: Connection, since: float, until: float, spans: int, tool: str | None
) -> Mapping[int, Mapping[str, int]]:
    columns = invocation.c
    span = _span(connection, columns.timestamp, since, until, spans).label("span")

    def found(how: DiscoveryMethod) -> ColumnElement[int]:
        return func.sum(case((ran & (columns.found == how.value), 1), else_=0)).label(how.value)

    query = select(
        span,
        func.count().label("calls"),
        func.sum(case((~columns.success, 1), else_=0)).label("failures"),
        *map(found, DiscoveryMethod),
    ).where(of_servers, *_between(connection, columns.timestamp, since, until))
    if tool is not None:
        query = query.where(columns.tool == tool)
    if spans > 1:
        query = query.group_by(span)
    return _by_span(connection.execute(query).mappings().all(), spans)


def _lists(
    connection: Connection, since: float, until: float, spans: int, sizes: Sizes
) -> Mapping[int, Mapping[str, int]]:
    columns = exposure.c
    span = _span(connection, columns.timestamp, since, until, spans).label("span")
    seen = _raw(queries.seen_tools).label("seen")
    there = _raw(columns.available).label("there")
    query = (
        select(span, seen, there, func.count().label("lists"))
        .where(_is_list, *_between(connection, columns.timestamp, since, until))
        .group_by(span, seen, there)
    )
    found = connection.execute(query).all()
    _measure(connection, {id_ for _, *ids, _ in found for id_ in ids}, sizes)
    return _by_span(
        [
            {"span": at, "lists": lists, "tools_shown": lists * sizes[shown], "tools_available": lists * sizes[there]}
            for at, shown, there, lists in found
        ],
        spans,
    )


def _measure(connection: Connection, ids: set[RawId], sizes: Sizes) -> None:
    """Read the number of names of unknown lists; a deleted one has none."""
    names: ColumnElement[Any] = toolset.c.names
    length = func.json_array_length(names if connection.dialect.name == "sqlite" else cast(names, JSON))
    query = select(_raw(toolset.c.id), length)
    missing = [id_ for id_ in ids if id_ not in sizes]
    for some in slices(missing):
        wanted = [UUID(bytes=id_) if isinstance(id_, bytes) else id_ for id_ in some]
        sizes.update(map(tuple, connection.execute(query.where(toolset.c.id.in_(wanted)))))
    for id_ in missing:
        sizes.setdefault(id_, 0)


def _raw(id_: ColumnElement[UUID]) -> ColumnElement[Any]:
    return type_coerce(id_, NullType())


def _between(connection: Connection, at: Column[float], since: float, until: float) -> list[ColumnElement[bool]]:
    """The condition on a time, without what is true anyway."""
    is_most = connection.dialect.name == "sqlite" and _is_most(connection, at, since, until)
    # SQLite cannot know how much lies where. For most of a table an index is the slow way: for a sum it has none.
    place = at + 0.0 if is_most else at
    return _since(place, since) + ([place < until] if math.isfinite(until) else [])


def _is_most(connection: Connection, at: Column[float], since: float, until: float) -> bool:
    """Whether a span of time holds more than half of that in which anything happened."""
    ends = select(select(func.min(at)).scalar_subquery(), select(func.max(at)).scalar_subquery())
    first, last = connection.execute(ends).one()
    return first is not None and min(until, last) - max(since, first) > (last - first) / 2


def _since(at: ColumnElement[float], since: float) -> list[ColumnElement[bool]]:
    return [at >= since] if since > 0 else []


def _span(
    connection: Connection, at: ColumnElement[float], since: float, until: float, spans: int
) -> ColumnElement[int]:
    """The number of the span that a time lies in."""
    if spans == 1:
        return literal(0)
    place = (at - since) * (spans / (until - since))
    # SQLite cuts what comes after the point and may have no floor; PostgreSQL rounds.
    return cast(place if connection.dialect.name == "sqlite" else func.floor(place), Integer)


def _by_span(found: Sequence[Mapping[Any, Any]], spans: int) -> Mapping[int, Mapping[str, int]]:
    """Sums by span; what rounding puts behind the last one belongs to that."""
    summed: dict[int, dict[str, int]] = {}
    for row in found:
        sums = summed.setdefault(min(row["span"], spans - 1), {})
        for name, number in row.items():
            if name != "span":
                sums[name] = sums.get(name, 0) + int(number or 0)
    return summed
