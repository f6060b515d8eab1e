"""The tables in ClickHouse. Times are in seconds since the epoch, with a column `time` in UTC next to them."""

import re
from collections.abc import Sequence
from typing import Final

_WORD: Final = "LowCardinality(String)"
_MERGED_WORD: Final = "SimpleAggregateFunction(anyLast, Nullable(String))"
_SETTINGS: Final = "SETTINGS non_replicated_deduplication_window = 10000"
_DAYS: Final = re.compile(r"toIntervalDay\((\d+)\)")

EXPIRING: Final = {"invocation": "timestamp", "exposure": "timestamp", "session": "written_at"}
"""The tables whose rows are deleted after some days, and the column with the time that counts."""


def table_definitions(days: int) -> Sequence[str]:
    """Return the statements that create the tables; rows are deleted after a number of days, 0 for never."""
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
    projects = f"ALTER TABLE session ADD COLUMN IF NOT EXISTS project {_MERGED_WORD} AFTER tools_available"
    toolsets = (
        "CREATE TABLE IF NOT EXISTS toolset (id UUID, names Array(String)) ENGINE = ReplacingMergeTree ORDER BY id"
    )
    erased = (
        "CREATE TABLE IF NOT EXISTS erased (session_id UUID, at DateTime DEFAULT now())"
        " ENGINE = ReplacingMergeTree ORDER BY session_id TTL at + INTERVAL 1 YEAR"
    )
    return calls, lists, sessions, projects, toolsets, erased


def expiry_change(table: str, definition: str, days: int) -> str:
    """Return the statement after which rows are deleted after `days`, empty if that is so by the table's definition."""
    found = _DAYS.search(definition.rpartition(" TTL ")[2])
    if (int(found[1]) if found else 0) == days:
        return ""
    return f"ALTER TABLE {table} " + (f"MODIFY {_ttl(table, days)}" if days else "REMOVE TTL")


def _ttl(table: str, days: int) -> str:
    return f"TTL toDateTime({EXPIRING[table]}) + INTERVAL {days} DAY" if days else ""
