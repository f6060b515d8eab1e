"""Usage kept in a SQL database."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, Self
from uuid import UUID

from riglm.adapters.analytics import aggregating, prediction_store, queries, storing
from riglm.adapters.analytics.database import Database, FileChanged, FileSound
from riglm.adapters.analytics.engine import TIMEOUT_SECONDS, is_conflict
from riglm.adapters.analytics.maintenance import SqlMaintenance
from riglm.adapters.analytics.overview import SqlOverview
from riglm.domain.cooccurrence import MOST_SESSIONS, ToolCooccurrence
from riglm.domain.errors import AnalyticsUnavailable
from riglm.domain.exposure import Exposure, ExposureTotals
from riglm.domain.invocation import ToolInvocation
from riglm.domain.learning import LearnedPair
from riglm.domain.policy import Override
from riglm.domain.session import Session
from riglm.domain.tool import ToolCatalog
from riglm.domain.usage import MAX_SESSIONS, SessionUse, WarmSet
from riglm.ports.analytics import AnalyticsPort, Record, RecordedSession, RecordRefused, SessionClosed
from riglm.ports.maintenance import ROWS_AT_ONCE
from riglm.ports.overview import SessionSummary, ToolStatistics

_PAIRS_AT_ONCE: Final = 1000
_ATTEMPTS: Final = 3  # of a transaction that conflicted, or met a file that was replaced or repaired


class SqlAnalytics(SqlMaintenance, SqlOverview, AnalyticsPort):
    """Keeps usage in the SQLite or PostgreSQL database at a URL; entering it connects and upgrades the schema.

    Raises `SchemaTooNew` on entering when a newer riglm wrote the store. `timeout` is how many seconds a record waits
    for another process that holds the database, or for the server's answer; questions and maintenance may take longer.
    With `durable` what SQLite stored survives a power cut. With `sets_aside` a damaged SQLite file gets another name,
    and a new one is begun: for processes that record or maintain. `names` gives the keyed hash of the name of a
    client, by which it is noted that it was forgotten; without it the name itself is. One object may serve several
    threads.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = TIMEOUT_SECONDS,
        durable: bool = False,
        sets_aside: bool = False,
        names: Callable[[str], str] = str,
    ) -> None:
        super().__init__()
        self._names = names
        self._database = Database(url, timeout=timeout, durable=durable, sets_aside=sets_aside)

    def __enter__(self) -> Self:
        """Connect, and bring the schema up to date."""
        self._database.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self._database.close()

    def maintenance_lease(self) -> AbstractContextManager[bool]:
        """Hold the maintenance lease while the block runs; yields False if another process holds it."""
        return self._database.lease()

    def record_many(self, records: Sequence[Record]) -> None:
        """Store all records in one transaction, or none of them."""
        for more in reversed(range(_ATTEMPTS)):
            try:
                with self._database.writing() as connection:
                    storing.store(connection, records, self._names)
            except FileSound as error:
                if not more:  # before, another process may have mended it just now
                    raise RecordRefused(f"a record cannot be stored: {error}") from error
            except AnalyticsUnavailable as error:
                if not more or not (is_conflict(error) or isinstance(error, FileChanged)):
                    raise
            else:
                return

    def create_session(self, session: Session) -> None:
        """Store a session."""
        self.record_many([session])

    def close_session(self, session_id: UUID, ended_at: float) -> None:
        """Note the end of a session."""
        self.record_many([SessionClosed(session_id=session_id, ended_at=ended_at)])

    def end_idle_sessions(self, before: float) -> int:
        """End every open session whose latest record is older than that time, and return their number."""
        return aggregating.end_idle_sessions(self._database, before)

    def log_invocation(self, invocation: ToolInvocation) -> None:
        """Store one invocation."""
        self.record_many([invocation])

    def get_cooccurrences(self, tools: Sequence[str]) -> Sequence[ToolCooccurrence]:
        """The pairs that hold any of the tools, most frequent first, then by name."""
        with self._database.reading() as connection:
            return queries.cooccurrences(connection, tools)

    def get_tool_frequencies(self, since: float) -> Mapping[str, int]:
        """Invocations by tool since the given time."""
        with self._database.reading() as connection:
            return queries.tool_frequencies(connection, since)

    def refresh_cooccurrences(self, now: float, most_sessions: int = MOST_SESSIONS) -> int:
        """Recompute co-occurrence from the invocations of the latest sessions, and return the number of pairs."""
        return aggregating.refresh_cooccurrences(self._database, now, most_sessions)

    def latest_refresh(self) -> float:
        """When co-occurrence was computed last; 0 when it never was or there are no pairs."""
        with self._database.reading() as connection:
            return aggregating.latest_refresh(connection)

    def list_sessions(self, limit: int = 100, *, active_only: bool = False) -> Sequence[SessionSummary]:
        """The latest sessions, newest first."""
        with self._database.reading() as connection:
            return queries.sessions(connection, limit, active_only=active_only)

    def list_invocations(self, session_id: UUID) -> Sequence[ToolInvocation]:
        """One session's invocations in order."""
        with self._database.reading() as connection:
            return queries.invocations(connection, session_id)

    def list_exposures(self, *session_ids: UUID) -> Sequence[Exposure]:
        """Return the exposures of sessions, each session's in the order of their time."""
        with self._database.reading() as connection:
            return queries.exposures(connection, session_ids)

    def tool_statistics(self, since: float = 0.0) -> Sequence[ToolStatistics]:
        """Every tool that was shown or used since the given time, most used first, then by name; never used: zeros."""
        with self._database.reading() as connection:
            return queries.tool_statistics(connection, since)

    def exposure_totals(self, since: float = 0.0) -> Sequence[ExposureTotals]:
        """What was shown since the given time came to, for each mode that occurred, in the order of their names."""
        with self._database.reading() as connection:
            return queries.totals(connection, since)

    def recent_calls(
        self, limit_sessions: int = 1000, since: float = 0.0, principal: str | None = None
    ) -> Sequence[RecordedSession]:
        """The latest sessions, of a principal or of all, with a successful call, oldest first, with all their uses."""
        with self._database.reading() as connection:
            return prediction_store.recent_sessions(connection, limit_sessions, since, principal)

    def list_learned_pairs(self, model: str, limit: int = 5000) -> Sequence[LearnedPair]:
        """The learned pairs of one model, newest first, then the most confident."""
        with self._database.reading() as connection:
            return prediction_store.learned_pairs(connection, model, limit)

    def prune_learned_pairs(self, most: int, at_once: int = ROWS_AT_ONCE) -> Iterator[int]:
        """Delete all learned pairs but the `most` newest, of any model, about `at_once` in each step."""
        return prediction_store.prune_learned_pairs(self._database, most, at_once)

    def put_override(self, override: Override) -> None:
        """Store an override, in place of the one with its id, and remove those that had expired when it was made."""
        with self._database.writing() as connection:
            prediction_store.put_override(connection, override)

    def list_overrides(self) -> Sequence[Override]:
        """All overrides, expired ones perhaps among them, in the order in which they were made."""
        with self._database.reading(seconds=None) as connection:
            return prediction_store.list_overrides(connection)

    def delete_override(self, override_id: UUID) -> bool:
        """Remove an override; False when there is none with this id."""
        with self._database.writing() as connection:
            return prediction_store.delete_override(connection, override_id)

    def get_warm_set(self, principal: str, client: str, profile: str) -> WarmSet | None:
        """Return the warm set of a principal, client and profile, None if there is none."""
        with self._database.reading(seconds=None) as connection:
            return prediction_store.get_warm_set(connection, principal, client, profile)

    def put_warm_set(self, warm_set: WarmSet, replaces: float | None) -> WarmSet:
        """Store a warm set in place of the one created at `replaces`, and return the one that is stored."""
        with self._database.writing() as connection:
            return prediction_store.put_warm_set(connection, warm_set, replaces)

    def forget_warm_sets(self) -> None:
        """Remove all warm sets."""
        with self._database.writing() as connection:
            prediction_store.forget_warm_sets(connection)

    def list_tool_catalogs(self, fingerprints: Sequence[str]) -> Sequence[ToolCatalog]:
        """Return the stored catalogs with these fingerprints."""
        with self._database.reading(seconds=None) as connection:
            return prediction_store.list_tool_catalogs(connection, fingerprints)

    def list_session_uses(self, principal: str | None = None, limit: int = MAX_SESSIONS) -> Sequence[SessionUse]:
        """Return the latest sessions with a successful call of an upstream tool, newest first."""
        with self._database.reading(seconds=None) as connection:
            return prediction_store.session_uses(connection, principal, limit)
