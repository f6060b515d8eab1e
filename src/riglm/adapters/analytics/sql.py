"""Usage kept in a SQL database."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, Self
from uuid import UUID

from riglm.adapters.analytics import aggregation, prediction_store, queries, storing
from riglm.adapters.analytics.dashboard_queries import SqlDashboardQueries
from riglm.adapters.analytics.database import Database, FalseCorruptionError, FileReplacedError
from riglm.adapters.analytics.engine import TIMEOUT_SECONDS, is_conflict
from riglm.adapters.analytics.maintenance import SqlMaintenance
from riglm.domain.cooccurrence import MAX_COOCCURRENCE_SESSIONS, ToolCooccurrence
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.exposure import Exposure, ExposureTotals
from riglm.domain.invocation import ToolInvocation
from riglm.domain.learning import LearnedPair
from riglm.domain.policy import Override
from riglm.domain.session import Session
from riglm.domain.tool import StoredToolCatalog
from riglm.domain.usage import MAX_USAGE_SESSIONS, SessionUse, WarmSet
from riglm.ports.analytics import AnalyticsPort, Record, RecordRejectedError, SessionClosed, TrainingSession
from riglm.ports.dashboard import SessionSummary, ToolStatistics
from riglm.ports.maintenance import ROW_BATCH_SIZE

_PAIRS_BATCH_SIZE: Final = 1000
_ATTEMPTS: Final = 3  # of a transaction that conflicted, or met a file that was replaced or repaired


class SqlAnalytics(SqlMaintenance, SqlDashboardQueries, AnalyticsPort):
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
        self._database = Database(url, timeout=timeout, durable=durable, is_quarantining=is_quarantining)

    def __enter__(self) -> Self:
        self._database.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def maintenance_lease(self) -> AbstractContextManager[bool]:
        return self._database.lease()

    def record_many(self, records: Sequence[Record]) -> None:
        for more in reversed(range(_ATTEMPTS)):
            try:
                with self._database.writing() as connection:
                    storing.store(connection, records, self._names)
            except FalseCorruptionError as error:
                if not more:  # before, another process may have mended it just now
                    raise RecordRejectedError(f"a record cannot be stored: {error}") from error
            except AnalyticsUnavailableError as error:
                if not more or not (is_conflict(error) or isinstance(error, FileReplacedError)):
                    raise
            else:
                return

    def create_session(self, session: Session) -> None:
        self.record_many([session])

    def close_session(self, session_id: UUID, ended_at: float) -> None:
        self.record_many([SessionClosed(session_id=session_id, ended_at=ended_at)])

    def end_idle_sessions(self, before: float) -> int:
        return aggregation.end_idle_sessions(self._database, before)

    def log_invocation(self, invocation: ToolInvocation) -> None:
        self.record_many([invocation])

    def get_cooccurrences(self, tools: Sequence[str]) -> Sequence[ToolCooccurrence]:
        with self._database.reading() as connection:
            return queries.cooccurrences(connection, tools)

    def get_tool_frequencies(self, since: float) -> Mapping[str, int]:
        with self._database.reading() as connection:
            return queries.tool_frequencies(connection, since)

    def refresh_cooccurrences(self, now: float, most_sessions: int = MAX_COOCCURRENCE_SESSIONS) -> int:
        return aggregation.refresh_cooccurrences(self._database, now, most_sessions)

    def latest_refresh(self) -> float:
        with self._database.reading() as connection:
            return aggregation.latest_refresh(connection)

    def list_sessions(self, limit: int = 100, *, active_only: bool = False) -> Sequence[SessionSummary]:
        with self._database.reading() as connection:
            return queries.sessions(connection, limit, active_only=active_only)

    def list_invocations(self, session_id: UUID) -> Sequence[ToolInvocation]:
        with self._database.reading() as connection:
            return queries.invocations(connection, session_id)

    def list_exposures(self, *session_ids: UUID) -> Sequence[Exposure]:
        with self._database.reading() as connection:
            return queries.exposures(connection, session_ids)

    def tool_statistics(self, since: float = 0.0) -> Sequence[ToolStatistics]:
        with self._database.reading() as connection:
            return queries.tool_statistics(connection, since)

    def exposure_totals(self, since: float = 0.0) -> Sequence[ExposureTotals]:
        with self._database.reading() as connection:
            return queries.totals(connection, since)

    def recent_calls(
        self, limit_sessions: int = 1000, since: float = 0.0, principal: str | None = None
    ) -> Sequence[TrainingSession]:
        with self._database.reading() as connection:
            return prediction_store.recent_sessions(connection, limit_sessions, since, principal)

    def list_learned_pairs(self, model: str, limit: int = 5000) -> Sequence[LearnedPair]:
        with self._database.reading() as connection:
            return prediction_store.learned_pairs(connection, model, limit)

    def prune_learned_pairs(self, most: int, at_once: int = ROW_BATCH_SIZE) -> Iterator[int]:
        return prediction_store.prune_learned_pairs(self._database, most, at_once)

    def put_override(self, override: Override) -> None:
        with self._database.writing() as connection:
            prediction_store.put_override(connection, override)

    def list_overrides(self) -> Sequence[Override]:
        with self._database.reading(seconds=None) as connection:
            return prediction_store.list_overrides(connection)

    def delete_override(self, override_id: UUID) -> bool:
        with self._database.writing() as connection:
            return prediction_store.delete_override(connection, override_id)

    def get_warm_set(self, principal: str, client: str, profile: str) -> WarmSet | None:
        with self._database.reading(seconds=None) as connection:
            return prediction_store.get_warm_set(connection, principal, client, profile)

    def put_warm_set(self, warm_set: WarmSet, replaces: float | None) -> WarmSet:
        with self._database.writing() as connection:
            return prediction_store.put_warm_set(connection, warm_set, replaces)

    def forget_warm_sets(self) -> None:
        with self._database.writing() as connection:
            prediction_store.forget_warm_sets(connection)

    def list_tool_catalogs(self, fingerprints: Sequence[str]) -> Sequence[StoredToolCatalog]:
        with self._database.reading(seconds=None) as connection:
            return prediction_store.list_tool_catalogs(connection, fingerprints)

    def list_session_uses(self, principal: str | None = None, limit: int = MAX_USAGE_SESSIONS) -> Sequence[SessionUse]:
        with self._database.reading(seconds=None) as connection:
            return prediction_store.session_uses(connection, principal, limit)
