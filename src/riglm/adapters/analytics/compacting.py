"""Gives space back that nothing is stored in."""

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Connection, text

from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.tables import metadata

_PAGES_AT_ONCE: Final = 50
_INCREMENTAL: Final = 2


def size_bytes(connection: Connection) -> int:
    """How much space the database takes, without its journal."""
    if connection.dialect.name == "sqlite":
        return _pragma(connection, "page_count") * _pragma(connection, "page_size")
    return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())


def compact(database: Database, *, whole: bool, reserve: float) -> Iterator[str]:
    """Give space back, in steps, each with what was done."""
    with database.apart() as connection:
        if connection.dialect.name == "sqlite":
            yield from _compact_file(connection, whole, reserve)
        else:
            yield from _vacuum_tables(connection, whole)


def _compact_file(connection: Connection, whole: bool, reserve: float) -> Iterator[str]:
    if whole:
        connection.exec_driver_sql(f"PRAGMA auto_vacuum={_INCREMENTAL}")
        connection.exec_driver_sql("VACUUM")
        yield "the file was rewritten"
    elif _pragma(connection, "auto_vacuum") == _INCREMENTAL:
        yield from _give_pages_back(connection, reserve)
    connection.exec_driver_sql("PRAGMA optimize").close()
    # Who wants all of it back wants nothing to stay in the journal either; else no writer is to wait for its end.
    how = "PASSIVE" if reserve else "TRUNCATE"
    connection.exec_driver_sql(f"PRAGMA wal_checkpoint({how})").close()
    yield "the journal was written back"


def _give_pages_back(connection: Connection, reserve: float) -> Iterator[str]:
    """Each step is a separate transaction, so that other processes write in between."""
    while True:
        free = _pragma(connection, "freelist_count")
        excess = free - int(_pragma(connection, "page_count") * reserve)
        if excess <= 0:
            return
        raw: Any = connection.connection.driver_connection
        # As a script, which is run to its end: other statements stop after the first page, having no row to show.
        raw.executescript(f"PRAGMA incremental_vacuum({min(excess, _PAGES_AT_ONCE)})").close()
        given = free - _pragma(connection, "freelist_count")
        if given <= 0:
            return
        yield f"{given} pages were given back"


def _vacuum_tables(connection: Connection, whole: bool) -> Iterator[str]:
    how = "FULL, ANALYZE" if whole else "ANALYZE"
    for table in metadata.sorted_tables:
        connection.exec_driver_sql(f'VACUUM ({how}) "{table.name}"')
        yield f"the table {table.name} was vacuumed"


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
