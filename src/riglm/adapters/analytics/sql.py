"""Usage kept in a SQL database, and the queries of the dashboard."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from statistics import mode
from typing import Any, Final, Self
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, func, or_, select

from riglm.adapters.analytics import queries, rows, storing
from riglm.adapters.analytics.database import Database, FalseCorruptionError, FileReplacedError, SqlStore, reads_quickly
from riglm.adapters.analytics.engine import TIMEOUT_SECONDS, is_conflict, is_postgresql
from riglm.adapters.analytics.forgetting import SqlErasure
from riglm.adapters.analytics.maintenance import SqlMaintenance
from riglm.adapters.analytics.prediction_store import Execute, PredictionStatements
from riglm.adapters.analytics.queries import SqlExport, SqlQueries
from riglm.adapters.analytics.tables import cooccurrence, invocation, learned_pair, session, training_update
from riglm.domain.cooccurrence import Cooccurrence
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ToolInvocation
from riglm.domain.prediction import Vector
from riglm.ports.analytics import AnalyticsPort, Record, RecordRejectedError, SessionKey, SessionSummary

_PAIRS_PER_TOOL: Final = 200  # that are read for each tool of a map, at most


class SqlDashboardQueries(SqlStore):
    """Queries of the dashboard; part of `SqlAnalytics`."""

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
    def find_session(self, connection: Connection, session_id: UUID) -> SessionSummary | None:
        return next(iter(queries.latest_sessions(connection, 1, session.c.id == session_id)), None)

    @reads_quickly
    def count_sessions(self, connection: Connection, since: float = 0.0) -> tuple[int, int]:
        count = select(func.count()).select_from(session)
        open_ = connection.execute(count.where(session.c.ended_at.is_(None))).scalar_one()
        return open_, connection.execute(count.where(session.c.started_at >= since)).scalar_one()

    @reads_quickly
    def get_earliest_call_time(self, connection: Connection) -> float:
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
    def list_top_cooccurrences(self, connection: Connection, most_tools: int) -> Sequence[Cooccurrence]:
        a, b = cooccurrence.c.tool_a, cooccurrence.c.tool_b
        order = (cooccurrence.c.count.desc(), a, b)
        tools: dict[str, None] = {}
        for pair in connection.execute(select(a, b).order_by(*order).limit(most_tools * _PAIRS_PER_TOOL)):
            if len(tools.keys() | set(pair)) > most_tools:
                break
            tools |= dict.fromkeys(pair)
        among = select(cooccurrence).where(a.in_(list(tools)), b.in_(list(tools))).order_by(*order)
        return [Cooccurrence(**row) for row in connection.execute(among).mappings()]

    @reads_quickly
    def get_context_vectors(self, connection: Connection, session_ids: Sequence[UUID]) -> Mapping[UUID, Vector]:
        import numpy as np  # noqa: PLC0415  # a store that is never asked for vectors need not load it

        pair, taught = learned_pair.c, training_update.c
        query = (
            select(taught.session_id, pair.model, pair.vector, pair.dimensions)
            .join_from(training_update, learned_pair, taught.pair_id == pair.id)
            .where(pair.dimensions > 0)
            .order_by(taught.session_id, taught.pair_id)
        )
        found = list(rows.rows_in(connection, query, taught.session_id, session_ids))
        model = mode(row.model for row in found) if found else ""
        vectors: dict[UUID, list[Vector]] = {}
        for row in found:
            if row.model == model:
                vectors.setdefault(row.session_id, []).append(rows.from_bytes(row.vector, row.dimensions))
        return {id_: np.mean(each, axis=0, dtype=np.float32) for id_, each in vectors.items()}


_ATTEMPTS: Final = 3  # of a transaction that conflicted, or met a file that was replaced or repaired


class SqlAnalytics(
    SqlQueries, SqlDashboardQueries, SqlMaintenance, SqlErasure, SqlExport, PredictionStatements, AnalyticsPort
):
    """Keeps usage in the SQLite or PostgreSQL database at a URL; entering it connects and upgrades the schema.

    Raises `SchemaTooNewError` on entering when a newer riglm wrote the store. `timeout` is how many seconds a record
    waits for another process that holds the database, or for the server's answer; questions and maintenance may take
    longer. With `durable` what SQLite stored survives a power cut. With `is_quarantining` a damaged SQLite file gets
    another name, and a new one is begun: for processes that record or maintain. `names` gives the keyed hash of the
    name of a client, by which it is noted that it was forgotten; without it the name itself is. One object may serve
    several threads.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = TIMEOUT_SECONDS,
        durable: bool = False,
        is_quarantining: bool = False,
        names: Callable[[str], str] = str,
    ) -> None:
        super().__init__()
        self._names = names
        self._is_postgresql = is_postgresql(url)
        self._database = Database(url, timeout=timeout, durable=durable, is_quarantining=is_quarantining)

    def __enter__(self) -> Self:
        self._database.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def maintenance_lease(self) -> AbstractContextManager[bool]:
        return self._database.lease()

    def record_many(self, records: Sequence[Record]) -> None:
        for more in reversed(range(_ATTEMPTS)):
            try:
                self._store(records)
            except FalseCorruptionError as error:
                if not more:  # before, another process may have mended it just now
                    raise RecordRejectedError(f"a record cannot be stored: {error}") from error
            except AnalyticsUnavailableError as error:
                if not more or not (is_conflict(error) or isinstance(error, FileReplacedError)):
                    raise
            else:
                return

    def _store(self, records: Sequence[Record]) -> None:
        if all(type(record) is ToolInvocation for record in records) and self._database.append(
            lambda connection: storing.store(connection, records, self._names)
        ):
            return
        with self._database.writing() as connection:
            storing.store(connection, records, self._names)

    def _to_id(self, id_: UUID) -> UUID | bytes:
        return id_ if self._is_postgresql else id_.bytes

    def _find(self, table: str, query: str, *values: Any) -> Sequence[Any]:
        with self._database.reading(seconds=None) as connection:
            return connection.exec_driver_sql(self._own(query), values).all()

    @contextmanager
    def _changing(self) -> Iterator[Execute]:
        with self._database.writing() as connection:
            yield lambda statement, values: connection.exec_driver_sql(self._own(statement), tuple(values))

    def _own(self, statement: str) -> str:
        """Return a statement with the driver's own placeholders."""
        return statement.replace("?", "%s") if self._is_postgresql else statement
