"""What is particular to SQLite: its file, its locks, its transactions."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url

from riglm.adapters.analytics.transactions import APART, WRITES

_CACHE_KIB: Final = 512
"""The most memory for pages, a quarter of SQLite's own: riglm mostly appends, and what was used once stays with it."""

_JOURNAL_BYTES: Final = 16 << 20
"""What stays of the journal's file once a large one was written back."""

_WAL_SECONDS: Final = 5.0
_WAL_PAUSE_SECONDS: Final = 0.01


def make_engine(url: str, timeout: float, *, durable: bool) -> Engine:
    """An engine that has not connected yet; statements wait `timeout` seconds for another process."""
    engine = create_engine(make_url(url), hide_parameters=True, connect_args={"timeout": timeout})

    def set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver begins no transactions: _begin does
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}").close()
        connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}").close()
        connection.execute(f"PRAGMA journal_size_limit={_JOURNAL_BYTES}").close()

    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", _begin)
    return engine


def database_file(url: str) -> Path | None:
    """The database file that `url` names, if it names one."""
    if not url.startswith("sqlite"):
        return None
    place: URL = make_url(url)
    if not place.database or place.database.startswith((":memory:", "file:")):
        return None
    return Path(place.database)


def identity(url: str) -> tuple[int, int] | None:
    """What tells the file that `url` names from another one of that name: (0, 0) when it is not there.

    None when that cannot be told, or no file is named.
    """
    file = database_file(url)
    try:
        there = None if file is None else file.stat()
    except FileNotFoundError:
        return 0, 0
    except OSError:
        return None
    return (there.st_dev, there.st_ino) if there is not None and there.st_ino else None


def prepare(engine: Engine, url: str) -> None:
    """Make a missing file, readable by its owner alone, and let readers work beside the writer."""
    file = database_file(url)
    if file is None:
        return
    _make(file)
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        if file.stat().st_size == 0:  # in an old one this would write, and change nothing
            cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")  # it can be made smaller a little at a time
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
def lease(url: str) -> Iterator[bool]:
    """Hold the exclusive lock on a file beside the database, if nobody has it; SQLite's own locks die with the process.

    It is not the database's own lock, for others write meanwhile. A database in memory has no others.
    """
    database = database_file(url)
    if database is None:
        yield True
        return
    file = database.with_name(f"{database.name}-lease")
    _make(file)
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as connection:
        yield _is_locked_by(connection)


def _is_locked_by(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True


def _make(file: Path) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Only a missing file may be opened here: closing any descriptor of a file drops every POSIX lock that this process
    # holds on it, those of its other SQLite connections too (sqlite.org/howtocorrupt.html, section 2.2).
    if not file.exists():
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if not options.get(APART):
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(WRITES) else "BEGIN")
