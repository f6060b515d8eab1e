"""The questions that the store answers, in SQL that SQLite and PostgreSQL both understand."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    RowMapping,
    Subquery,
    and_,
    case,
    cast,
    func,
    literal,
    or_,
    select,
)

from riglm.adapters.analytics import rows
from riglm.adapters.analytics.rows import NameTuple, slices, toolsets
from riglm.adapters.analytics.tables import cooccurrence, exposure, invocation, session
from riglm.domain.cooccurrence import ToolCooccurrence
from riglm.domain.exposure import ANSWER_SURFACES, SEARCH_SURFACE, Exposure, ExposureTotals
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ErrorKind, ToolInvocation
from riglm.ports.dashboard import SessionSummary, ToolStatistics


class SessionShown(NamedTuple):
    """How much one session was shown."""

    exposures: int
    lists: int
    list_changes: int
    searches: int


NOTHING_SHOWN: Final = SessionShown(0, 0, 0, 0)


def exposures(connection: Connection, session_ids: Sequence[UUID]) -> Sequence[Exposure]:
    """Return the exposures of sessions, each session's in the order of their time."""
    found: list[RowMapping] = []
    for some in slices(session_ids):
        query = select(exposure).where(exposure.c.session_id.in_(some))
        found += connection.execute(query.order_by(exposure.c.timestamp, exposure.c.id)).mappings()
    names = toolsets(connection, (row[column] for row in found for column in ("shown", "available")))
    return [rows.exposure_from(row, names) for row in found]


def shown_by_session(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, SessionShown]:
    """How much each of these sessions was shown; those that were shown nothing are missing."""
    found: dict[UUID, SessionShown] = {}
    for some in slices(ids):
        each = _compared(exposure.c.session_id.in_(some))
        sums = map(func.sum, (each.c.listed, each.c.changed, each.c.searched))
        query = select(each.c.session_id, func.count(), *sums)
        for id_, *numbers in connection.execute(query.group_by(each.c.session_id)):
            found[id_] = SessionShown(*map(int, numbers))
    return found


def totals(connection: Connection, since: float) -> Sequence[ExposureTotals]:
    """What was shown since the given time came to, for each mode that occurred, in the order of their names."""
    each = _compared(exposure.c.timestamp >= since)
    listed = each.c.listed
    query = select(
        each.c.mode,
        func.count(each.c.session_id.distinct()).label("sessions"),
        func.sum(listed).label("lists"),
        func.sum(each.c.changed).label("changes"),
        func.sum(each.c.searched).label("searches"),
        func.sum(each.c.tokens_shown * listed).label("tokens_shown"),
        func.sum(each.c.tokens_hidden * listed).label("tokens_hidden"),
        func.sum(each.c.tokens_own * listed + each.c.tokens_shown * (1 - listed)).label("tokens_own"),
        func.sum(each.c.tokens_shown * each.c.changed).label("tokens_resent"),
    )
    found = connection.execute(query.group_by(each.c.mode).order_by(each.c.mode))
    return [ExposureTotals(mode=mode, **_integers(numbers, query)) for mode, *numbers in found]


def _compared(chosen: ColumnElement[bool]) -> Subquery:
    """The chosen exposures, each with whether it is a list, a search, or a list unlike the session's one before."""
    columns = exposure.c
    listed = case((columns.surface.in_(sorted(ANSWER_SURFACES)), 0), else_=1)
    order = (columns.timestamp, columns.id)
    before = func.lag(columns.shown).over(partition_by=(columns.session_id, listed), order_by=order)
    return (
        select(
            columns.session_id,
            columns.mode,
            columns.tokens_shown,
            columns.tokens_hidden,
            columns.tokens_own,
            listed.label("listed"),
            case((columns.surface == SEARCH_SURFACE, 1), else_=0).label("searched"),
            case((and_(listed == 1, before.is_not(None), before != columns.shown), 1), else_=0).label("changed"),
        )
        .where(chosen)
        .subquery()
    )


def _integers(numbers: Sequence[Any], query: Any) -> dict[str, int]:
    """Sums by name; some databases give decimals."""
    return {column.name: int(number) for column, number in zip(query.selected_columns[1:], numbers, strict=True)}


def nearest_rank(ascending: Sequence[float], percent: int) -> float:
    """Return the smallest value that at least `percent` percent do not exceed; 0 without values."""
    return ascending[math.ceil(len(ascending) * percent / 100) - 1] if ascending else 0.0


_SESSIONS_BATCH_SIZE: Final = 500
_MICROSECONDS: Final = 1000.0  # of a millisecond
_PERCENTILES: Final = {"median_ms": 50, "p95_ms": 95}

ran: Final = or_(invocation.c.error_kind.is_(None), invocation.c.error_kind == ErrorKind.TOOL.value)
"""Whether an invocation is a use of its tool, as in `riglm.domain.invocation.USES`."""

_of_servers: Final = invocation.c.upstream != OWN_UPSTREAM

_failures: Final = func.sum(case((invocation.c.success, 0), else_=1))


def sessions(connection: Connection, limit: int, *, active_only: bool) -> Sequence[SessionSummary]:
    """The latest sessions, newest first."""
    query = select(session).order_by(session.c.started_at.desc(), session.c.id.desc()).limit(limit)
    if active_only:
        query = query.where(session.c.ended_at.is_(None))
    return summaries(connection, connection.execute(query).mappings().all())


def summaries(connection: Connection, found: Sequence[RowMapping]) -> Sequence[SessionSummary]:
    """What happened in the sessions of these rows."""
    ids = [row["id"] for row in found]
    names = toolsets(connection, (row["tools_available"] for row in found))
    calls = _calls_by_session(connection, ids)
    shown = shown_by_session(connection, ids)
    return [_summary(row, names, calls.get(row["id"], (0, 0, 0)), shown.get(row["id"], NOTHING_SHOWN)) for row in found]


def invocations(connection: Connection, session_id: UUID) -> Sequence[ToolInvocation]:
    """One session's invocations in order."""
    query = select(invocation).where(invocation.c.session_id == session_id)
    found = connection.execute(query.order_by(invocation.c.sequence_number, invocation.c.id)).mappings()
    return [rows.invocation_from(row) for row in found]


def tool_frequencies(connection: Connection, since: float) -> Mapping[str, int]:
    """Return invocations by tool since the given time, without meta-tools."""
    query = select(invocation.c.tool, func.count()).where(invocation.c.timestamp >= since, _of_servers)
    return dict(connection.execute(query.group_by(invocation.c.tool)).all())


def tool_statistics(connection: Connection, since: float) -> Sequence[ToolStatistics]:
    """Every tool that was shown or used since the given time, most used first, then by name."""
    seen = case((exposure.c.mode == "shadow", exposure.c.available), else_=exposure.c.shown)
    shown = connection.execute(select(seen).where(exposure.c.timestamp >= since).distinct()).scalars()
    return with_never_used(connection, since, shown)


def with_never_used(connection: Connection, since: float, lists: Iterable[UUID]) -> Sequence[ToolStatistics]:
    """Every tool that was used since the given time, and those in the lists, most used first, then by name."""
    found = [_statistics(row) for row in connection.execute(_statistics_query(connection, since)).mappings()]
    used = {each.tool for each in found}
    names = {tool for some in toolsets(connection, lists).values() for tool in some}
    told = [replace(each, in_lists=each.tool in names) for each in found]
    told += [_never_used(tool) for tool in names - used]
    return sorted(told, key=lambda each: (-each.invocations, each.tool, each.upstream))


def tool_totals(connection: Connection, tool: str, since: float) -> ToolStatistics | None:
    """Return how a tool was used since the given time, for any upstream; None if it was not used."""
    row = connection.execute(_statistics_query(connection, since, tool)).mappings().one_or_none()
    if row is None:
        return None
    upstream, count = invocation.c.upstream, func.count()
    ran_it = select(upstream).where(invocation.c.tool == tool, invocation.c.timestamp >= since).group_by(upstream)
    most = connection.execute(ran_it.order_by(count.desc(), upstream).limit(1)).scalar_one()
    return _statistics(row, upstream=most)


def cooccurrences(connection: Connection, tools: Sequence[str]) -> Sequence[ToolCooccurrence]:
    """The pairs that hold any of the tools, most frequent first, then by name."""
    found: dict[tuple[str, str], ToolCooccurrence] = {}
    for some in slices(tools):
        query = select(cooccurrence).where(or_(cooccurrence.c.tool_a.in_(some), cooccurrence.c.tool_b.in_(some)))
        for row in connection.execute(query).mappings():
            found[row["tool_a"], row["tool_b"]] = ToolCooccurrence(**row)
    return sorted(found.values(), key=lambda pair: (-pair.count, pair.tool_a, pair.tool_b))


def sessions_after(connection: Connection, after: UUID | None) -> Sequence[UUID]:
    """The next few sessions with invocations by id, from the lowest id on when `after` is None."""
    query = select(invocation.c.session_id).distinct().order_by(invocation.c.session_id).limit(_SESSIONS_BATCH_SIZE)
    if after is not None:
        query = query.where(invocation.c.session_id > after)
    return connection.execute(query).scalars().all()


def calls_of_sessions(connection: Connection, first: UUID, last: UUID) -> Iterator[Iterator[tuple[str, int]]]:
    """Tool and sequence number of each successful call of a server's tool, by session, from `first` to `last`."""
    query = (
        select(invocation.c.session_id, invocation.c.tool, invocation.c.sequence_number)
        .where(invocation.c.session_id.between(first, last), invocation.c.success, _of_servers)
        .order_by(invocation.c.session_id, invocation.c.sequence_number, invocation.c.id)
    )
    for _, calls in groupby(connection.execute(query), key=itemgetter(0)):
        yield ((tool, number) for _, tool, number in calls)


def _calls_by_session(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, tuple[int, int, int]]:
    found: dict[UUID, tuple[int, int, int]] = {}
    for some in slices(ids):
        query = (
            select(invocation.c.session_id, func.count(), _failures, func.max(invocation.c.sequence_number))
            .where(invocation.c.session_id.in_(some))
            .group_by(invocation.c.session_id)
        )
        found.update({id_: (calls, failed, highest) for id_, calls, failed, highest in connection.execute(query)})
    return found


def _summary(
    row: RowMapping, names: Mapping[UUID, NameTuple], calls: tuple[int, int, int], shown: SessionShown
) -> SessionSummary:
    count, failures, highest = calls
    return SessionSummary(
        session=rows.session_from(row, names[row["tools_available"]], highest),
        invocations=count,
        failures=failures,
        exposures=shown.exposures,
        lists=shown.lists,
        list_changes=shown.list_changes,
        searches=shown.searches,
    )


def _statistics_query(connection: Connection, since: float, tool: str | None = None) -> Any:
    """How each tool of each upstream was used, or one tool of any."""
    calls = invocation.c
    key = (calls.tool, calls.upstream) if tool is None else (calls.tool,)

    def found(how: DiscoveryMethod) -> ColumnElement[int]:
        return func.sum(case((calls.found == how.value, 1), else_=0))

    query = select(
        *key,
        func.count().label("invocations"),
        _failures.label("failures"),
        func.count(calls.session_id.distinct()).label("sessions"),
        func.max(calls.timestamp).label("last_used"),
        func.sum(case((ran, 1), else_=0)).label("uses"),
        found(DiscoveryMethod.LISTED).label("listed"),
        found(DiscoveryMethod.SEARCHED).label("searched"),
        *_durations(connection),
    ).group_by(*key)
    if since > 0:  # for a whole table its index is the slower way
        query = query.where(calls.timestamp >= since)
    return query if tool is None else query.where(calls.tool == tool)


def _durations(connection: Connection) -> tuple[ColumnElement[Any], ...]:
    """The rows for percentiles: SQLite has no function for them, and is slow to rank rows and to write fractions."""
    column = invocation.c.duration_ms
    if connection.dialect.name == "sqlite":
        return (func.group_concat(cast(column * _MICROSECONDS + 0.5, Integer)).label("microseconds"),)
    return tuple(
        func.percentile_disc(literal(percent / 100)).within_group(column).label(name)
        for name, percent in _PERCENTILES.items()
    )


def _statistics(row: RowMapping, **known: str) -> ToolStatistics:
    told = {**row, **known}
    durations = told.pop("microseconds", None)
    if durations is not None:
        ascending = sorted(map(int, durations.split(",")))
        told |= {name: nearest_rank(ascending, percent) / _MICROSECONDS for name, percent in _PERCENTILES.items()}
    return ToolStatistics(**told)


def _never_used(tool: str) -> ToolStatistics:
    return ToolStatistics(
        tool=tool,
        upstream="",
        invocations=0,
        failures=0,
        sessions=0,
        median_ms=0.0,
        p95_ms=0.0,
        last_used=0.0,
        in_lists=True,
    )
