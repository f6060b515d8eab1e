"""Usage in ClickHouse: sessions, calls and lists are written in batches, and read for the figures of a long time."""

import hashlib
import json
import logging
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

import urllib3
from clickhouse_connect.driver import create_client
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

from riglm.adapters.analytics import rows
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ToolInvocation
from riglm.domain.redaction import mask_address
from riglm.domain.retention import ErasureRequest, ErasureScope
from riglm.domain.session import DEFAULT_PROFILE, PROFILE, IdentificationMethod, Session
from riglm.domain.session_cost import MAX_SESSIONS, TokenUsage
from riglm.ports.analytics import ArchivePort, Record, SessionClosed, TrainingCall, TrainingSession

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clickhouse_connect.driver.client import Client

_WORD: Final = "LowCardinality(String)"
_MERGED_WORD: Final = "SimpleAggregateFunction(anyLast, Nullable(String))"
_SETTINGS: Final = "SETTINGS non_replicated_deduplication_window = 10000"
_DAYS: Final = re.compile(r"toIntervalDay\((\d+)\)")

EXPIRING: Final = {"invocation": "timestamp", "exposure": "timestamp", "session": "written_at"}
"""The tables whose rows are deleted after some days, and the column with the time that counts."""


def table_definitions(days: int) -> Sequence[str]:
    """Return the statements that create the tables; rows are deleted after a number of days, 0 for never.

    Times are in seconds since the epoch, with a column `time` in UTC next to them.
    """
    ttl = {table: _ttl(table, days) for table in EXPIRING}
    calls = f"""
        CREATE TABLE IF NOT EXISTS invocation (
            id UUID, session_id UUID, tool {_WORD}, upstream {_WORD}, timestamp Float64, duration_ms Float64,
            success Bool, sequence_number Int64, arguments_hash String, arguments Nullable(String),
            error_kind LowCardinality(Nullable(String)), error_code Nullable(Int64), found {_WORD},
            time DateTime64(6, 'UTC') MATERIALIZED fromUnixTimestamp64Micro(toInt64(timestamp * 1e6), 'UTC')
        ) ENGINE = MergeTree PARTITION BY toYYYYMM(toDateTime(timestamp)) ORDER BY (session_id, id) {ttl["invocation"]}
        {_SETTINGS}"""
    lists = f"""
        CREATE TABLE IF NOT EXISTS exposure (
            id UUID, session_id UUID, timestamp Float64, shown UUID, available UUID,
            predictor {_WORD}, reason String, mode {_WORD}, surface {_WORD},
            tokens_shown Int64, tokens_hidden Int64, tokens_own Int64,
            time DateTime64(6, 'UTC') MATERIALIZED fromUnixTimestamp64Micro(toInt64(timestamp * 1e6), 'UTC')
        ) ENGINE = MergeTree PARTITION BY toYYYYMM(toDateTime(timestamp)) ORDER BY (session_id, id) {ttl["exposure"]}
        {_SETTINGS}"""
    sessions = f"""
        CREATE TABLE IF NOT EXISTS session (
            id UUID, started_at SimpleAggregateFunction(min, Nullable(Float64)),
            ended_at SimpleAggregateFunction(max, Nullable(Float64)), era {_MERGED_WORD}, transport {_MERGED_WORD},
            method {_MERGED_WORD}, confidence {_MERGED_WORD}, client_name {_MERGED_WORD}, client_version {_MERGED_WORD},
            client_id {_MERGED_WORD}, principal {_MERGED_WORD}, installation {_MERGED_WORD},
            protocol_version {_MERGED_WORD}, keys {_MERGED_WORD}, metadata {_MERGED_WORD},
            tools_available SimpleAggregateFunction(anyLast, Nullable(UUID)), project {_MERGED_WORD},
            written_at SimpleAggregateFunction(max, DateTime) DEFAULT now()
        ) ENGINE = AggregatingMergeTree ORDER BY id {ttl["session"]}"""
    toolsets = (
        "CREATE TABLE IF NOT EXISTS toolset (id UUID, names Array(String)) ENGINE = ReplacingMergeTree ORDER BY id"
    )
    erased = (
        "CREATE TABLE IF NOT EXISTS erased (session_id UUID, at DateTime DEFAULT now())"
        " ENGINE = ReplacingMergeTree ORDER BY session_id TTL at + INTERVAL 1 YEAR"
    )
    return calls, lists, sessions, toolsets, erased


def expiry_change(table: str, definition: str, days: int) -> str:
    """Return the statement after which rows are deleted after `days`, empty if that is so by the table's definition."""
    found = _DAYS.search(definition.rpartition(" TTL ")[2])
    if (int(found[1]) if found else 0) == days:
        return ""
    return f"ALTER TABLE {table} " + (f"MODIFY {_ttl(table, days)}" if days else "REMOVE TTL")


def _ttl(table: str, days: int) -> str:
    return f"TTL toDateTime({EXPIRING[table]}) + INTERVAL {days} DAY" if days else ""


Row = dict[str, Any]

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_RAN: Final = "(error_kind IS NULL OR error_kind = 'tool')"
_OF_SERVERS: Final = f"upstream != '{OWN_UPSTREAM}'"
_SESSIONS_WITH_SUCCESS: Final = f"SELECT session_id FROM invocation WHERE success AND {_OF_SERVERS}"
_PROFILE: Final = f"if(JSONHas(metadata, '{PROFILE}'), JSONExtractString(metadata, '{PROFILE}'), '{DEFAULT_PROFILE}')"
_ERASED_AT_ONCE: Final = 2_500
_SESSION_COLUMNS: Final = {"invocation": "session_id", "exposure": "session_id", "session": "id"}
_MAX_CONNECT_SECONDS: Final = 10.0
_DEFINITIONS: Final = (
    "SELECT name, create_table_query FROM system.tables WHERE database = currentDatabase()"
    f" AND name IN ({', '.join(repr(each) for each in EXPIRING)})"
)


class ClickHouse(ArchivePort):
    """A database of ClickHouse. Not for several threads at once: each needs a separate object."""

    def __init__(self, url: str, *, days: int, installation: str, timeout_seconds: float) -> None:
        """A database that is not open yet.

        Args:
            url: that of the HTTP interface, with the database as its path.
            days: for which rows are kept, 0 permanently.
            installation: a name for who sends from here; others may send to the same database.
            timeout_seconds: maximum time for a response.
        """
        self._url = url
        self._installation = installation
        self._days = days
        self._timeout_seconds = timeout_seconds
        self._client: Client | None = None

    def __enter__(self) -> Self:
        for library in ("clickhouse_connect", "urllib3"):  # failures are reported once, by the caller
            logging.getLogger(library).setLevel(logging.CRITICAL)
        with self._translated():
            seconds = self._timeout_seconds
            self._client = create_client(
                dsn=self._url,
                autogenerate_session_id=False,
                connect_timeout=min(seconds, _MAX_CONNECT_SECONDS),
                send_receive_timeout=seconds,
            )
            for statement in table_definitions(self._days):
                self._client.command(statement)
            for table, definition in self._client.query(_DEFINITIONS).result_rows:
                if change := expiry_change(table, definition, self._days):
                    self._client.command(change)
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def record_many(self, records: Sequence[Record]) -> None:
        """Write sessions, calls and lists; other records are left out.

        Tables are written one after the other. After a failure the same records can be written again: calls and lists
        whose ids are stored are left out, and sessions are merged.
        """
        ids = {_session_id(each) for each in records} - {None}
        erased = self._erased(ids)
        records = [each for each in records if _session_id(each) not in erased]
        lists = [each for each in records if isinstance(each, Exposure)]
        sessions = [each for each in records if isinstance(each, Session)]
        names = {names for each in lists for names in (each.shown, each.available)}
        names |= {each.tools_available for each in sessions}
        with self._translated():
            self._insert("toolset", [{"id": rows.toolset_id(each), "names": list(map(_text, each))} for each in names])
            self._insert("session", [_session_row(each) | {"installation": self._installation} for each in sessions])
            ends = (each for each in records if isinstance(each, SessionClosed))
            self._insert("session", [{"id": each.session_id, "ended_at": each.ended_at} for each in ends])
            self._insert_new("exposure", [rows.exposure_row(each) for each in lists])
            calls = (each for each in records if isinstance(each, ToolInvocation))
            self._insert_new("invocation", [rows.invocation_row(each, lambda text: text) for each in calls])
        self._delete(self._stored(self._erased(ids)))  # some may have been erased meanwhile

    def count_sessions(self, since: float = 0.0) -> tuple[int, int]:
        query = (
            "SELECT countIf(ended_at IS NULL) AS active, countIf(started_at >= {since:Float64}) AS started"
            " FROM session FINAL WHERE started_at IS NOT NULL"
        )
        (found,) = self._query(query, since=since)
        return found["active"], found["started"]

    def get_earliest_call_time(self) -> float:
        (found,) = self._query("SELECT minOrNull(timestamp) AS earliest FROM invocation")
        return math.inf if found["earliest"] is None else found["earliest"]

    def list_exposures(self, *session_ids: UUID) -> Sequence[Exposure]:
        found: list[Exposure] = []
        for some in rows.slices(list(session_ids)):
            order = "WHERE session_id IN {ids:Array(UUID)} ORDER BY timestamp, toString(id)"
            stored = self._query(f"SELECT * FROM exposure {order}", ids=some)
            names = self._toolsets(row[column] for row in stored for column in ("shown", "available"))
            found += [rows.exposure_from(row, names) for row in stored]
        return found

    def list_training_sessions(
        self,
        limit_sessions: int = 1000,
        since: float = 0.0,
        principal: str | None = None,
        profile: str | None = None,
        max_calls: int | None = None,
    ) -> Sequence[TrainingSession]:
        conditions = [f"id IN ({_SESSIONS_WITH_SUCCESS})"]
        if principal is not None:
            conditions.append("principal = {principal:String}")
        values = {"limit": limit_sessions, "since": since, "principal": principal, "profile": profile}
        return self._training_sessions(conditions, values, f"{_RAN} AND {_OF_SERVERS}", max_calls)

    def list_token_usage(self, limit: int = MAX_SESSIONS) -> Sequence[TokenUsage]:
        return ()

    def list_proxied_sessions(
        self, limit: int, since: float = 0.0, profile: str | None = None, max_calls: int | None = None
    ) -> Sequence[TrainingSession]:
        is_proxied = f"method != '{IdentificationMethod.TRANSCRIPT.value}'"
        values = {"limit": limit, "since": since, "profile": profile}
        return self._training_sessions([is_proxied], values, "true", max_calls)

    def _training_sessions(
        self, conditions: Sequence[str], values: Row, of_calls: str, max_calls: int | None
    ) -> Sequence[TrainingSession]:
        """Return the latest sessions that meet the conditions, oldest first, with those calls that meet `of_calls`."""
        chosen = [*conditions, "started_at >= {since:Float64}"]
        if values["profile"] is not None:
            chosen.append(f"{_PROFILE} = {{profile:String}}")
        found = self._sessions(chosen, values)
        if max_calls is not None:
            made = self._query(_CALLS_OF_SESSIONS, ids=[each.id for each in found])
            counts = {row["session_id"]: row["invocations"] for row in made}
            found = found[: rows.count_within(max_calls, [counts.get(each.id, 0) for each in found])]
        found = found[::-1]
        calls: dict[UUID, list[TrainingCall]] = {each.id: [] for each in found}
        for some in rows.slices(list(calls)):
            for row in self._query(_CALLS_TO_LEARN.format(of_calls=of_calls), ids=some):
                row |= {"found": DiscoveryMethod(row["found"]), "ran": bool(row["ran"])}
                calls[row.pop("session_id")].append(TrainingCall(**row))
        return [
            TrainingSession(
                id=each.id,
                started_at=each.started_at,
                client=each.client.name,
                client_id=each.client_id,
                principal=each.principal,
                project=each.project,
                profile=each.profile,
                tools_available=each.tools_available,
                calls=tuple(calls[each.id]),
            )
            for each in found
        ]

    def erase(self, request: ErasureRequest, erased: Sequence[UUID], client_hash: Callable[[str], str]) -> int:
        mine = "FROM session FINAL WHERE installation = {installation:String}"
        values: Row = {"installation": self._installation, "key": request.key, "at": request.at}
        match request.whose:
            case ErasureScope.SESSION:
                condition = "id = {key:UUID}"
            case ErasureScope.PRINCIPAL:
                condition = "principal = {key:String}"
            case ErasureScope.CLIENT:
                known = [row["client_name"] for row in self._query(f"SELECT DISTINCT client_name {mine}", **values)]
                values["names"] = [name for name in known if client_hash(name) == request.key]
                condition = "(client_id = {key:String} OR client_name IN {names:Array(String)})"
        query = f"SELECT id {mine} AND {condition} AND started_at <= {{at:Float64}}"
        found = {row["id"] for row in self._query(query, **values)}
        ids = sorted(found | set(erased))
        with self._translated():
            self._insert("erased", [{"session_id": each} for each in ids])
        self._delete(ids)
        return len(found)

    def _stored(self, ids: Iterable[UUID]) -> Sequence[UUID]:
        """Return those of the sessions of which something is stored."""
        wanted = list(ids)
        parts = (
            f"SELECT {column} AS id FROM {table} WHERE {column} IN {{ids:Array(UUID)}}"
            for table, column in _SESSION_COLUMNS.items()
        )
        return [row["id"] for row in self._query(" UNION DISTINCT ".join(parts), ids=wanted)] if wanted else []

    def _delete(self, ids: Sequence[UUID]) -> None:
        with self._translated():
            for some in rows.slices(ids, _ERASED_AT_ONCE):
                for table, column in _SESSION_COLUMNS.items():
                    condition = f"{column} IN {{ids:Array(UUID)}} SETTINGS mutations_sync = 1"
                    self._opened.command(f"ALTER TABLE {table} DELETE WHERE {condition}", parameters={"ids": some})

    def _erased(self, ids: Iterable[UUID | None]) -> set[UUID]:
        query = "SELECT DISTINCT session_id FROM erased WHERE session_id IN {ids:Array(UUID)}"
        return {row["session_id"] for row in self._query(query, ids=list(ids))}

    @contextmanager
    def _translated(self) -> "Iterator[None]":
        """Raise failures of ClickHouse, and of the way to it, as `AnalyticsUnavailableError`."""
        try:
            yield
        except (DatabaseError, OperationalError, urllib3.exceptions.HTTPError, OSError) as error:
            cause = getattr(error.__cause__, "reason", None) or error
            place, reason = mask_address(self._url), str(cause).strip()[:300]
            words = f"ClickHouse at {place} is unavailable: {reason} — fix: start it, or check `clickhouse.url`"
            raise AnalyticsUnavailableError(words) from error
        except (TypeError, ValueError) as error:
            if self._client is not None:
                raise
            raise AnalyticsUnavailableError(f"clickhouse.url cannot be used: {error}") from error

    @property
    def _opened(self) -> "Client":
        if self._client is None:
            raise AnalyticsUnavailableError("ClickHouse is not open")
        return self._client

    def _query(self, query: str, **values: Any) -> list[Row]:
        with self._translated():
            return list(self._opened.query(query, parameters=values).named_results())

    def _insert(self, table: str, table_rows: Sequence[Row]) -> None:
        if table_rows:
            columns = list(table_rows[0])
            data = [[row[column] for column in columns] for row in table_rows]
            self._opened.insert(table, data, column_names=columns)

    def _insert_new(self, table: str, table_rows: Sequence[Row]) -> None:
        """Insert rows whose ids are not stored. A batch that is sent twice at once is stored once by its token."""
        if not table_rows:
            return
        query = f"SELECT id FROM {table} WHERE session_id IN {{sessions:Array(UUID)}} AND id IN {{ids:Array(UUID)}}"
        sessions = list({row["session_id"] for row in table_rows})
        found = self._query(query, sessions=sessions, ids=[row["id"] for row in table_rows])
        known = {row["id"] for row in found}
        new = list({row["id"]: row for row in table_rows if row["id"] not in known}.values())
        if new:
            token = hashlib.sha256(b"".join(row["id"].bytes for row in new)).hexdigest()
            data = [[_storable(value) for value in row.values()] for row in new]
            settings = {"insert_deduplication_token": token}
            self._opened.insert(table, data, column_names=list(new[0]), settings=settings)

    def _toolsets(self, ids: Iterable[UUID]) -> dict[UUID, tuple[str, ...]]:
        wanted = list(set(ids))
        found = self._query("SELECT DISTINCT id, names FROM toolset WHERE id IN {ids:Array(UUID)}", ids=wanted)
        return dict.fromkeys(wanted, ()) | {row["id"]: tuple(row["names"]) for row in found}

    def _sessions(self, conditions: Sequence[str], values: Row) -> list[Session]:
        """Return sessions, newest first, with 0 as their number of invocations.

        `FINAL` merges the rows of a session in the order in which they were inserted, `GROUP BY` in any order.
        """
        query = (
            f"SELECT * EXCEPT (installation, written_at) FROM session FINAL WHERE {' AND '.join(conditions)}"
            " ORDER BY started_at DESC, toString(id) DESC LIMIT {limit:UInt64}"
        )
        found = self._query(query, **values)
        names = self._toolsets(row["tools_available"] for row in found)
        sessions = []
        for row in found:
            texts = {"keys": json.loads(row["keys"]), "metadata": json.loads(row["metadata"])}
            texts["project"] = row["project"] or ""
            sessions.append(rows.session_from({**row, **texts}, names[row["tools_available"]], 0))
        return sessions


_CALLS_OF_SESSIONS: Final = """
    SELECT session_id, count() AS invocations FROM invocation WHERE session_id IN {ids:Array(UUID)}
    GROUP BY session_id"""

_CALLS_TO_LEARN: Final = f"""
    SELECT session_id, tool, upstream, found, success, timestamp, {_RAN} AS ran, duration_ms FROM invocation
    WHERE session_id IN {{{{ids:Array(UUID)}}}} AND {{of_calls}}
    ORDER BY session_id, sequence_number, toString(id)"""


def _session_id(record: Record) -> UUID | None:
    return record.id if isinstance(record, Session) else getattr(record, "session_id", None)


def _session_row(session: Session) -> Row:
    row = rows.session_row(session)
    texts = {"keys": json.dumps(row["keys"]), "metadata": json.dumps(row["metadata"])}
    known = {"project": session.project or None}  # null does not replace what was known before
    return {name: _storable(value) for name, value in (row | texts | known).items()}


def _storable(value: Any) -> Any:
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    """The text with U+FFFD for lone surrogates, which no encoding holds."""
    return _SURROGATE.sub("\ufffd", text)
