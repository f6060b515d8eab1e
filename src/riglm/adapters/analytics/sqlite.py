"""What is particular to SQLite: its file, its locks, its transactions."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url

from riglm.adapters.analytics import store_file

WRITES: Final = "riglm_writes"
"""Whether it will write."""

SECONDS: Final = "riglm_seconds"
"""How many seconds one statement in it may take; None for what the engine was given."""

APART: Final = "riglm_apart"
"""True if there is no transaction: each statement is independent, as some of maintenance must be."""


_CACHE_KIB: Final = 512  # for pages, a quarter of SQLite's own: riglm mostly appends, and what was used once stays
_JOURNAL_BYTES: Final = 16 << 20  # what stays of the journal's file once a large one was written back

_FILE: Final = "sqlite:///"
_IN_MEMORY: Final = "?vfs=memdb"
_WAL_SECONDS: Final = 5.0
_WAL_PAUSE_SECONDS: Final = 0.01


def make_engine(url: str, timeout: float, *, durable: bool) -> Engine:
    """An engine that has not connected yet, and makes a missing file; statements wait `timeout` seconds for others."""
    file = database_file(url)
    engine = create_engine(parsed(url), hide_parameters=True, connect_args={"timeout": timeout})

    def set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver begins no transactions: _begin does
        connection.text_factory = lambda raw: raw.decode(errors="replace")  # damaged text ends no reading
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}").close()
        connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}").close()
        connection.execute(f"PRAGMA journal_size_limit={_JOURNAL_BYTES}").close()

    def name_database(_dialect: Any, _record: Any, arguments: list[Any], options: dict[str, Any]) -> None:
        if file is not None:
            store_file.make(file)
            store_file.extend_index(file)
            arguments[0] = f"{Path(arguments[0]).as_uri()}?mode=rw"  # SQLite creates none: a move would be missed
        else:
            arguments[0] = parsed(url).database
        options["uri"] = True

    def begin(connection: Connection) -> None:
        if file is not None:
            store_file.extend_index(file)
        options = connection.get_execution_options()
        if not options.get(APART):
            connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(WRITES) else "BEGIN")

    def close(_connection: Any, _record: Any) -> None:
        if file is not None:
            store_file.extend_index(file)  # the last connection writes the journal back

    if parsed(url).database:
        event.listen(engine, "do_connect", name_database)
    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", begin)
    event.listen(engine, "close", close)
    return engine


def parsed(url: str) -> URL:
    """Return a URL as SQLAlchemy has it; all that follows `sqlite:///` is the file, with any characters."""
    return URL.create("sqlite", database=url.removeprefix(_FILE)) if url.startswith(_FILE) else make_url(url)


def database_file(url: str) -> Path | None:
    """The database file that `url` names, if it names one."""
    if not url.startswith("sqlite"):
        return None
    place = parsed(url)
    if not place.database or place.database.startswith((":memory:", "file:")):
        return None
    return Path(place.database)


def prepare(engine: Engine, url: str) -> None:
    """Let readers run next to the writer, and let a new file shrink a little at a time."""
    file = database_file(url)
    if file is None:
        return
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        if file.stat().st_size == 0:  # in an old one this would write, and change nothing
            cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")
        use_wal(cursor)
    finally:
        raw.close()


def use_wal(cursor: Any) -> None:
    """Change the journal's mode; SQLite does not wait for another process that does the same, so this does."""
    until = time.monotonic() + _WAL_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(_WAL_PAUSE_SECONDS)
        else:
            return


@contextmanager
def memory_database() -> Iterator[str]:
    """Create an empty database in the memory of this process, and yield its URL. It is lost when the block ends."""
    database = f"file:/riglm-{uuid4().hex}{_IN_MEMORY}"
    with closing(sqlite3.connect(database, uri=True, check_same_thread=False)):
        yield f"{_FILE}{database}"


@contextmanager
def lease(url: str) -> Iterator[bool]:
    """Hold the exclusive lock on a database next to this one, to which others write; yields False if it is taken."""
    file = database_file(url)
    if file is not None:
        with store_file.locked(file.with_name(f"{file.name}-lease"), timeout=0) as mine:
            yield mine
        return
    database = (parsed(url).database or "").replace(_IN_MEMORY, f"-lease{_IN_MEMORY}")
    with closing(sqlite3.connect(database, uri=True, timeout=0, isolation_level=None)) as connection:
        yield store_file.is_locked_by(connection)
