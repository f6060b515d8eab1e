"""Queries of what was recorded: sessions, calls, lists, tools, what prediction learns from, and the export of all."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import mode
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from riglm.adapters.analytics import rows, tables
from riglm.adapters.analytics.database import SqlStore, reads, reads_quickly
from riglm.adapters.analytics.prediction_store import ESCAPE, profile_patterns
from riglm.adapters.analytics.rows import NameTuple, count, count_within, from_bytes, rows_in, slices, toolsets
from riglm.adapters.analytics.tables import (
    cooccurrence,
    exposure,
    invocation,
    learned_pair,
    session,
    token_usage,
    training_update,
)
from riglm.domain.cooccurrence import Cooccurrence
from riglm.domain.exposure import ANSWER_SURFACES, SEARCH_SURFACE, Exposure
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ErrorKind, ToolInvocation
from riglm.domain.learning import LearnedPair
from riglm.domain.prediction import Vector
from riglm.domain.session import DEFAULT_PROFILE, PROFILE, IdentificationMethod
from riglm.domain.session_cost import MAX_SESSIONS, TokenUsage
from riglm.ports.analytics import ExportRow, RecordKind, SessionKey, SessionSummary, TrainingCall, TrainingSession

ran: Final = sa.or_(invocation.c.error_kind.is_(None), invocation.c.error_kind == ErrorKind.TOOL.value)
"""True if an invocation is a use of its tool, as in `riglm.domain.invocation.USES`."""

of_servers: Final = invocation.c.upstream != OWN_UPSTREAM

_failures: Final = sa.func.sum(sa.case((invocation.c.success, 0), else_=1))


def _with_hidden(row: dict[str, Any]) -> dict[str, Any]:
    """What was hidden, in place of what was available."""
    available = row.pop("available")
    return {**row, "hidden": sorted(set(available) - set(row["shown"]))}


def _with_vector(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "vector": from_bytes(row["vector"], row["dimensions"]).tolist()}


_TIMES: Final[Mapping[RecordKind, sa.Column[Any]]] = {  # of the events in each table
    RecordKind.SESSIONS: session.c.started_at,
    RecordKind.INVOCATIONS: invocation.c.timestamp,
    RecordKind.EXPOSURES: exposure.c.timestamp,
    RecordKind.COOCCURRENCES: cooccurrence.c.last_updated,
    RecordKind.LEARNED_PAIRS: learned_pair.c.updated_at,
    RecordKind.OVERRIDES: tables.override.c.created_at,
    RecordKind.WARM_SETS: tables.warm_set.c.created_at,
}
_CONVERSIONS: Final = {RecordKind.EXPOSURES: _with_hidden, RecordKind.LEARNED_PAIRS: _with_vector}
_LISTS: Final = frozenset({"tools_available", "shown", "available"})  # columns that refer to lists of tools

_PAIRS_PER_TOOL: Final = 200  # that are read for each tool of a map, at most


class SqlQueries(SqlStore):
    """Queries of what was recorded, and its export; part of `SqlAnalytics`."""

    @reads
    def list_exposures(self, connection: sa.Connection, *session_ids: UUID) -> Sequence[Exposure]:
        return latest_exposures(connection, session_ids)

    @reads
    def get_cooccurrences(self, connection: sa.Connection, tools: Sequence[str]) -> Sequence[Cooccurrence]:
        found: dict[tuple[str, str], Cooccurrence] = {}
        for some in slices(tools):
            query = sa.select(cooccurrence).where(
                sa.or_(cooccurrence.c.tool_a.in_(some), cooccurrence.c.tool_b.in_(some))
            )
            for row in connection.execute(query).mappings():
                found[row["tool_a"], row["tool_b"]] = Cooccurrence(**row)
        return sorted(found.values(), key=lambda pair: (-pair.count, pair.tool_a, pair.tool_b))

    @reads
    def get_tool_frequencies(self, connection: sa.Connection, since: float = 0.0) -> Mapping[str, int]:
        is_use = sa.and_(ran, of_servers, invocation.c.timestamp >= since)
        counts = sa.select(invocation.c.tool, sa.func.count()).where(is_use).group_by(invocation.c.tool)
        return {tool: uses for tool, uses in connection.execute(counts)}  # noqa: C416  # rows are no tuples to mypy

    @reads
    def list_known_tools(self, connection: sa.Connection) -> frozenset[str]:
        is_list = exposure.c.surface.not_in(sorted(ANSWER_SURFACES))
        lists = connection.execute(sa.select(exposure.c.available).where(is_list).distinct()).scalars()
        used = connection.execute(
            sa.select(invocation.c.tool).where(ran, of_servers, invocation.c.upstream != "").distinct()
        )
        return frozenset(tool for names in toolsets(connection, lists).values() for tool in names).union(used.scalars())

    @reads
    def list_training_sessions(
        self,
        connection: sa.Connection,
        limit_sessions: int = 1000,
        since: float = 0.0,
        principal: str | None = None,
        profile: str | None = None,
        max_calls: int | None = None,
    ) -> Sequence[TrainingSession]:
        columns = session.c
        has_calls = sa.exists().where(invocation.c.session_id == columns.id, invocation.c.success, of_servers)
        is_theirs = sa.true() if principal is None else columns.principal == principal
        chosen = _latest(limit_sessions, since, profile, is_theirs, has_calls)
        return _training_sessions(connection, chosen, max_calls, ran, of_servers)

    @reads
    def list_proxied_sessions(
        self,
        connection: sa.Connection,
        limit: int,
        since: float = 0.0,
        profile: str | None = None,
        max_calls: int | None = None,
    ) -> Sequence[TrainingSession]:
        is_proxied = session.c.method != IdentificationMethod.TRANSCRIPT.value
        return _training_sessions(connection, _latest(limit, since, profile, is_proxied), max_calls)

    @reads
    def list_token_usage(self, connection: sa.Connection, limit: int = MAX_SESSIONS) -> Sequence[TokenUsage]:
        latest = sa.select(token_usage).order_by(token_usage.c.started_at.desc(), token_usage.c.id).limit(limit)
        return [TokenUsage(**row) for row in connection.execute(latest).mappings()]

    @reads
    def list_learned_pairs(self, connection: sa.Connection, model: str, limit: int = 5000) -> Sequence[LearnedPair]:
        columns = learned_pair.c
        order = (columns.updated_at.desc(), columns.confidence.desc(), columns.id)
        query = sa.select(learned_pair).where(columns.model == model).order_by(*order).limit(limit)
        return [rows.learned_pair_from(row) for row in connection.execute(query).mappings()]

    @reads_quickly
    def list_sessions(
        self,
        connection: sa.Connection,
        limit: int = 100,
        *,
        active_only: bool = False,
        before: SessionKey | None = None,
    ) -> Sequence[SessionSummary]:
        started, id_ = session.c.started_at, session.c.id
        chosen: list[sa.ColumnElement[bool]] = [session.c.ended_at.is_(None)] if active_only else []
        if before is not None:
            chosen += [started <= before.started_at, sa.or_(started < before.started_at, id_ < before.id)]
        return latest_sessions(connection, limit, *chosen)

    @reads_quickly
    def find_session(self, connection: sa.Connection, session_id: UUID) -> SessionSummary | None:
        return next(iter(latest_sessions(connection, 1, session.c.id == session_id)), None)

    @reads_quickly
    def count_sessions(self, connection: sa.Connection, since: float = 0.0) -> tuple[int, int]:
        all_ = sa.select(sa.func.count()).select_from(session)
        open_ = connection.execute(all_.where(session.c.ended_at.is_(None))).scalar_one()
        return open_, connection.execute(all_.where(session.c.started_at >= since)).scalar_one()

    @reads_quickly
    def get_earliest_call_time(self, connection: sa.Connection) -> float:
        earliest = connection.execute(sa.select(sa.func.min(invocation.c.timestamp))).scalar_one()
        return math.inf if earliest is None else earliest

    @reads_quickly
    def list_invocations(
        self, connection: sa.Connection, session_id: UUID, limit: int | None = None
    ) -> Sequence[ToolInvocation]:
        columns = invocation.c
        query = sa.select(invocation).where(columns.session_id == session_id)
        latest = query.order_by(columns.sequence_number.desc(), columns.id.desc()).limit(limit)
        return [rows.invocation_from(row) for row in connection.execute(latest).mappings()][::-1]

    @reads_quickly
    def latest_exposures(self, connection: sa.Connection, session_id: UUID, most: int) -> Sequence[Exposure]:
        return latest_exposures(connection, [session_id], most)

    @reads_quickly
    def list_top_cooccurrences(self, connection: sa.Connection, most_tools: int) -> Sequence[Cooccurrence]:
        a, b = cooccurrence.c.tool_a, cooccurrence.c.tool_b
        order = (cooccurrence.c.count.desc(), a, b)
        tools: dict[str, None] = {}
        for pair in connection.execute(sa.select(a, b).order_by(*order).limit(most_tools * _PAIRS_PER_TOOL)):
            if len(tools.keys() | set(pair)) > most_tools:
                break
            tools |= dict.fromkeys(pair)
        among = sa.select(cooccurrence).where(a.in_(list(tools)), b.in_(list(tools))).order_by(*order)
        return [Cooccurrence(**row) for row in connection.execute(among).mappings()]

    @reads_quickly
    def get_context_vectors(self, connection: sa.Connection, session_ids: Sequence[UUID]) -> Mapping[UUID, Vector]:
        import numpy as np  # noqa: PLC0415  # a store that is never asked for vectors need not load it

        pair, taught = learned_pair.c, training_update.c
        query = (
            sa.select(taught.session_id, pair.model, pair.vector, pair.dimensions)
            .join_from(training_update, learned_pair, taught.pair_id == pair.id)
            .where(pair.dimensions > 0)
            .order_by(taught.session_id, taught.pair_id)
        )
        found = list(rows_in(connection, query, taught.session_id, session_ids))
        model = mode(row.model for row in found) if found else ""
        vectors: dict[UUID, list[Vector]] = {}
        for row in found:
            if row.model == model:
                vectors.setdefault(row.session_id, []).append(from_bytes(row.vector, row.dimensions))
        return {id_: np.mean(each, axis=0, dtype=np.float32) for id_, each in vectors.items()}

    @reads
    def count_rows(self, connection: sa.Connection, kind: RecordKind, since: float = 0.0) -> int:
        return count(connection, _TIMES[kind].table, _TIMES[kind] >= since)

    def export(self, kind: RecordKind, since: float = 0.0, at_once: int = 1000) -> Iterator[Sequence[ExportRow]]:
        time, convert = _TIMES[kind], _CONVERSIONS.get(kind, dict)
        order = (time, *time.table.primary_key)  # these identify every row
        chosen: sa.ColumnElement[bool] = time >= since
        while True:
            query = sa.select(time.table).where(chosen).order_by(*order).limit(at_once)
            with self._database.reading() as connection:
                found = connection.execute(query).mappings().all()
                lists = toolsets(connection, (row[column] for row in found for column in _LISTS & row.keys()))
            if found:
                yield [convert(_plain(row, lists)) for row in found]
            if len(found) < at_once:
                return
            last = sa.tuple_(*(sa.literal(found[-1][column.name], column.type) for column in order))
            chosen = sa.and_(time >= found[-1][time.name], sa.tuple_(*order) > last)  # the time alone, for its index


def _in_profile(profile: str) -> sa.ColumnElement[bool]:
    metadata = sa.type_coerce(session.c.metadata, sa.Text)
    conditions = (
        metadata.like(pattern, escape=ESCAPE) if matches else metadata.not_like(pattern, escape=ESCAPE)
        for pattern, matches in profile_patterns(profile)
    )
    return sa.or_(*conditions)


def _latest(limit: int, since: float, profile: str | None, *conditions: sa.ColumnElement[bool]) -> Any:
    """Return the query for the latest sessions that meet the conditions."""
    columns = session.c
    is_in_profile = sa.true() if profile is None else _in_profile(profile)
    names = ("id", "started_at", "client_name", "client_id", "principal", "project", "metadata", "tools_available")
    chosen = sa.select(*(columns[name] for name in names))
    chosen = chosen.where(is_in_profile, columns.started_at >= since, *conditions)
    return chosen.order_by(columns.started_at.desc(), columns.id.desc()).limit(limit)


def _training_sessions(
    connection: sa.Connection, chosen: Any, max_calls: int | None, *of_calls: sa.ColumnElement[bool]
) -> Sequence[TrainingSession]:
    """Return sessions, oldest first, with those of their calls that meet the conditions."""
    found = connection.execute(chosen).all()
    if max_calls is not None:
        found = found[: count_within(max_calls, _call_counts(connection, [row.id for row in found]))]
    found = found[::-1]
    names = toolsets(connection, (row.tools_available for row in found))
    calls = _training_calls(connection, [row.id for row in found], max_calls, *of_calls)
    return [
        TrainingSession(
            id=row.id,
            started_at=row.started_at,
            client=row.client_name,
            client_id=row.client_id,
            principal=row.principal,
            project=row.project,
            profile=row.metadata.get(PROFILE, DEFAULT_PROFILE),
            tools_available=names[row.tools_available],
            calls=tuple(calls[row.id]),
        )
        for row in found
    ]


def _training_calls(
    connection: sa.Connection, sessions: Sequence[UUID], limit: int | None, *chosen: sa.ColumnElement[bool]
) -> dict[UUID, list[TrainingCall]]:
    columns = invocation.c
    found: dict[UUID, list[TrainingCall]] = {id_: [] for id_ in sessions}
    names = ("session_id", "tool", "upstream", "found", "success", "timestamp", "error_kind", "duration_ms")
    query = sa.select(*(columns[name] for name in names)).where(*chosen).limit(limit)
    ordered = query.order_by(columns.session_id, columns.sequence_number, columns.id)
    for row in rows_in(connection, ordered, columns.session_id, sessions):
        id_, tool, upstream, how, success, timestamp, error, duration = row
        has_run = error is None or error == ErrorKind.TOOL.value
        found[id_].append(TrainingCall(tool, upstream, DiscoveryMethod(how), success, timestamp, has_run, duration))
    return found


def _call_counts(connection: sa.Connection, sessions: Sequence[UUID]) -> list[int]:
    """Return the number of calls of each session."""
    id_ = invocation.c.session_id
    found = dict(map(tuple, rows_in(connection, sa.select(id_, sa.func.count()).group_by(id_), id_, sessions)))
    return [found.get(each, 0) for each in sessions]


def latest_sessions(connection: sa.Connection, limit: int, *chosen: sa.ColumnElement[bool]) -> Sequence[SessionSummary]:
    """Return the latest of the chosen sessions, newest first."""
    query = sa.select(session).where(*chosen).order_by(session.c.started_at.desc(), session.c.id.desc()).limit(limit)
    found = connection.execute(query).mappings().all()
    ids = [row["id"] for row in found]
    names = toolsets(connection, (row["tools_available"] for row in found))
    calls, shown = _calls_by_session(connection, ids), _shown_by_session(connection, ids)
    summaries = []
    for row in found:
        invocations, failures, highest = calls.get(row["id"], (0, 0, 0))
        recorded = rows.session_from(row, names[row["tools_available"]], highest)
        counts = shown.get(row["id"], {"exposures": 0})
        summaries.append(SessionSummary(session=recorded, invocations=invocations, failures=failures, **counts))
    return summaries


def latest_exposures(
    connection: sa.Connection, session_ids: Sequence[UUID], limit: int | None = None
) -> Sequence[Exposure]:
    """Return the latest exposures of sessions, in the order of their time."""
    found: list[sa.RowMapping] = []
    for some in slices(session_ids):
        query = sa.select(exposure).where(exposure.c.session_id.in_(some))
        latest = query.order_by(exposure.c.timestamp.desc(), exposure.c.id.desc()).limit(limit)
        found += connection.execute(latest).mappings().all()[::-1]
    names = toolsets(connection, (row[column] for row in found for column in ("shown", "available")))
    return [rows.exposure_from(row, names) for row in found]


def _calls_by_session(connection: sa.Connection, ids: Sequence[UUID]) -> dict[UUID, tuple[int, int, int]]:
    """Return the number of calls and of failures, and the highest sequence number."""
    by = invocation.c.session_id
    query = sa.select(by, sa.func.count(), _failures, sa.func.max(invocation.c.sequence_number)).group_by(by)
    return {id_: (calls, failed, highest) for id_, calls, failed, highest in rows_in(connection, query, by, ids)}


def _shown_by_session(connection: sa.Connection, ids: Sequence[UUID]) -> dict[UUID, dict[str, int]]:
    """Return the counts of `SessionSummary` for each session with exposures."""
    found: dict[UUID, dict[str, int]] = {}
    for some in slices(ids):
        each = _compared(exposure.c.session_id.in_(some))
        query = sa.select(
            each.c.session_id,
            sa.func.count().label("exposures"),
            sa.func.sum(each.c.listed).label("lists"),
            sa.func.sum(each.c.changed).label("list_changes"),
            sa.func.sum(each.c.searched).label("searches"),
        )
        for row in connection.execute(query.group_by(each.c.session_id)).mappings():
            found[row["session_id"]] = {name: int(row[name]) for name in row if name != "session_id"}
    return found


def _compared(chosen: sa.ColumnElement[bool]) -> sa.Subquery:
    """The chosen exposures, each with whether it is a list, a search, or a list unlike the session's one before."""
    columns = exposure.c
    listed = sa.case((columns.surface.in_(sorted(ANSWER_SURFACES)), 0), else_=1)
    order = (columns.timestamp, columns.id)
    before = sa.func.lag(columns.shown).over(partition_by=(columns.session_id, listed), order_by=order)
    return (
        sa.select(
            columns.session_id,
            listed.label("listed"),
            sa.case((columns.surface == SEARCH_SURFACE, 1), else_=0).label("searched"),
            sa.case((sa.and_(listed == 1, before.is_not(None), before != columns.shown), 1), else_=0).label("changed"),
        )
        .where(chosen)
        .subquery()
    )


def _plain(row: sa.RowMapping, lists: Mapping[UUID, NameTuple]) -> dict[str, Any]:
    """A row in plain values, with the names of tools in place of what refers to a list of them."""
    plain = {name: list(lists[value]) if name in _LISTS else value for name, value in row.items()}
    return {name: str(value) if isinstance(value, UUID) else value for name, value in plain.items()}
