"""The copy of a store into another database: SQLite to PostgreSQL, back, or to another of the same kind."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import sqlalchemy as sa

from riglm.adapters.analytics.engine import LONG_SECONDS, reading, translated, writing
from riglm.adapters.analytics.rows import count, from_bytes, upsert
from riglm.adapters.analytics.tables import engine_for, forgotten, learned_pair, metadata, upgrade

_BATCH_ROWS: Final = 500

_TABLES: Final = (forgotten, *(table for table in metadata.sorted_tables if table is not forgotten))
"""Erasures come first, so that a process that uses the target already refuses what was erased."""


def count_rows(url: str) -> dict[str, int]:
    """Return the number of rows in each table of the store at `url`.

    Raises:
        AnalyticsUnavailableError: the store cannot be used.
    """
    with translated(url), engine_for(url) as engine, reading(engine) as connection:
        return {table.name: count(connection, table) for table in _TABLES}


def copy_store(source: str, target: str, on_rows: Callable[[int], None]) -> None:
    """Copy the store at the URL `source` into the database at `target`, which gets its tables.

    All is read in one transaction, as it was at the beginning. A row of the target with the same primary key is
    overwritten, and others stay: a second run completes an interrupted one, and adds what was recorded in the
    meantime. `on_rows` is called with the number of further rows after each batch.

    Raises:
        AnalyticsUnavailableError: one of the databases cannot be used. What was copied stays.
        SchemaTooNewError: a newer riglm wrote one of them.
    """
    for url in (source, target):
        upgrade(url)
    with engine_for(target) as written, translated(source), engine_for(source) as read, reading(read) as connection:
        if read.dialect.name == "postgresql":
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        for table in _TABLES:
            rows = connection.execution_options(yield_per=_BATCH_ROWS).execute(sa.select(table))
            for batch in rows.mappings().partitions():
                with translated(target):
                    _write(written, table, [dict(row) for row in batch])
                on_rows(len(batch))


def _write(engine: sa.Engine, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
    if table is forgotten:
        rows = [row | {"is_done": False} for row in rows]  # the target may have records that were copied before
    with writing(engine, seconds=LONG_SECONDS) as connection:
        upsert(connection, table, rows)
        if table is learned_pair and engine.dialect.name == "postgresql":
            from riglm.adapters.analytics.postgresql import keep_vectors  # noqa: PLC0415  # the driver is an extra

            vectors = ((row["id"], from_bytes(row["vector"], row["dimensions"]), row["updated_at"]) for row in rows)
            keep_vectors(connection, vectors)
