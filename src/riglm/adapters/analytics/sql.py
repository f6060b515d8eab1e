"""Usage kept in a SQL database."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from sqlalchemy import Connection, Engine, Table, bindparam, delete, func, insert, update
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, StatementError

from riglm.adapters.analytics import queries, rows
from riglm.adapters.analytics.engine import BUSY_TIMEOUT_MS, make_engine, safe_url, translated, writing
from riglm.adapters.analytics.rows import Row
from riglm.adapters.analytics.schema import bring_up_to_date
from riglm.adapters.analytics.tables import cooccurrence, exposure, invocation, session, toolset
from riglm.domain.cooccurrence import CooccurrenceCounter, ToolCooccurrence
from riglm.domain.errors import AnalyticsUnavailable
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ToolInvocation
from riglm.domain.session import Session
from riglm.ports.analytics import (
    AnalyticsPort,
    Record,
    RecordRefused,
    SessionClosed,
    SessionSummary,
    ToolStatistics,
)

_PAIRS_AT_ONCE: Final = 1000
_BAD_VALUE: Final = (ValueError, TypeError, AttributeError, OverflowError)


class SqlAnalytics(AnalyticsPort):
    """Keeps usage in the database that a SQLAlchemy URL names; entering it connects and upgrades the schema.

    Raises `SchemaTooNew` on entering when a newer riglm wrote the store. `busy_timeout_ms` is how long a statement
    waits for another process that holds a SQLite database. One object may serve several threads.
    """

    def __init__(self, url: str, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        self._url = url
        self._busy_timeout_ms = busy_timeout_ms
        self._engine: Engine | None = None

    def __enter__(self) -> Self:
        """Connect, and bring the schema up to date."""
        with translated(self._url):
            engine = make_engine(self._url, self._busy_timeout_ms)
            try:
                bring_up_to_date(engine, self._url)
            except BaseException:
                engine.dispose()
                raise
        self._engine = engine
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def record_many(self, records: Sequence[Record]) -> None:
        """Store all records in one transaction, or none of them."""
        with self._writing() as connection, _refusing():
            _store(connection, records)

    def create_session(self, session: Session) -> None:
        """Store a session."""
        self.record_many([session])

    def close_session(self, session_id: UUID, ended_at: float) -> None:
        """Note the end of a session."""
        self.record_many([SessionClosed(session_id=session_id, ended_at=ended_at)])

    def log_invocation(self, invocation: ToolInvocation) -> None:
        """Store one invocation."""
        self.record_many([invocation])

    def get_cooccurrences(self, tools: Sequence[str]) -> Sequence[ToolCooccurrence]:
        """The pairs that hold any of the tools, most frequent first, then by name."""
        with self._reading() as connection:
            return queries.cooccurrences(connection, tools)

    def get_tool_frequencies(self, since: float) -> Mapping[str, int]:
        """Invocations by tool since the given time."""
        with self._reading() as connection:
            return queries.tool_frequencies(connection, since)

    def refresh_cooccurrences(self, now: float) -> int:
        """Compute co-occurrence anew from the invocations, and give the number of pairs."""
        counter = CooccurrenceCounter()
        last = None
        while True:
            with (
                self._reading() as connection
            ):  # a new one for each few sessions: a long one would keep the WAL growing
                ids = queries.sessions_after(connection, last)
                if not ids:
                    break
                last = ids[-1]
                for calls in queries.calls_of_sessions(connection, ids[0], last):
                    counter.add_session(calls)
        pairs = counter.pairs(now)
        with self._writing() as connection:
            connection.execute(delete(cooccurrence))
            while some := [_pair_row(pair) for pair in islice(pairs, _PAIRS_AT_ONCE)]:
                connection.execute(insert(cooccurrence), some)
        return len(counter)

    def list_sessions(self, limit: int = 100, *, active_only: bool = False) -> Sequence[SessionSummary]:
        """The latest sessions, newest first."""
        with self._reading() as connection:
            return queries.sessions(connection, limit, active_only=active_only)

    def list_invocations(self, session_id: UUID) -> Sequence[ToolInvocation]:
        """One session's invocations in order."""
        with self._reading() as connection:
            return queries.invocations(connection, session_id)

    def list_exposures(self, session_id: UUID) -> Sequence[Exposure]:
        """One session's exposures in the order of their time."""
        with self._reading() as connection:
            return queries.exposures(connection, session_id)

    def tool_statistics(self, since: float = 0.0) -> Sequence[ToolStatistics]:
        """Every tool that was shown or used since the given time, most used first, then by name; never used: zeros."""
        with self._reading() as connection:
            return queries.tool_statistics(connection, since)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with translated(self._url), self._opened().connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with translated(self._url), writing(self._opened()) as connection:
            yield connection

    def _opened(self) -> Engine:
        if self._engine is None:
            raise AnalyticsUnavailable(f"the analytics store {safe_url(self._url)} is not open: enter it first")
        return self._engine


@contextmanager
def _refusing() -> Iterator[None]:
    """Tell a value that the database cannot hold from a database that does not work."""
    try:
        yield
    except StatementError as error:
        if isinstance(error, DBAPIError) and not isinstance(error, IntegrityError | DataError):
            raise
        raise RecordRefused(f"a record does not fit the analytics store: {error.orig}") from error
    except _BAD_VALUE as error:
        raise RecordRefused(f"a record does not fit the analytics store: {error}") from error


def _store(connection: Connection, records: Sequence[Record]) -> None:
    sessions: dict[UUID, Session] = {}
    ends: dict[UUID, float] = {}
    calls: list[Row] = []
    exposures: list[Exposure] = []
    for record in records:
        match record:
            case ToolInvocation():
                calls.append(rows.invocation_row(record))
            case Session():
                sessions[record.id] = record
            case Exposure():
                exposures.append(record)
            case SessionClosed():
                ends[record.session_id] = record.ended_at
            case _:
                raise TypeError(f"{type(record).__name__} is no record")
    lists = [session.tools_available for session in sessions.values()]
    lists += [names for exposure in exposures for names in (exposure.shown, exposure.available)]
    _insert_new(connection, toolset, rows.toolset_rows(lists))
    _upsert_sessions(connection, [rows.session_row(session) for session in sessions.values()])
    _insert_new(connection, invocation, calls)
    _insert_new(connection, exposure, [rows.exposure_row(exposure) for exposure in exposures])
    _end_sessions(connection, ends)


def _insert(connection: Connection, table: Table) -> Any:
    """This database's own INSERT, which knows ON CONFLICT."""
    return importlib.import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert(table)


def _insert_new(connection: Connection, table: Table, new: list[Row]) -> None:
    if new:
        connection.execute(_insert(connection, table).on_conflict_do_nothing(index_elements=["id"]), new)


def _upsert_sessions(connection: Connection, new: list[Row]) -> None:
    if new:
        statement = _insert(connection, session)
        given = statement.excluded
        taken = {column.name: given[column.name] for column in session.c if column.name not in {"id", "started_at"}}
        taken["ended_at"] = func.coalesce(session.c.ended_at, given.ended_at)
        connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=taken), new)


def _end_sessions(connection: Connection, ends: Mapping[UUID, float]) -> None:
    if ends:
        statement = update(session).where(session.c.id == bindparam("closed")).values(ended_at=bindparam("at"))
        connection.execute(statement, [{"closed": id_, "at": float(at)} for id_, at in ends.items()])


def _pair_row(pair: ToolCooccurrence) -> Row:
    return {
        "tool_a": pair.tool_a,
        "tool_b": pair.tool_b,
        "count": pair.count,
        "average_distance": pair.average_distance,
        "last_updated": pair.last_updated,
    }
