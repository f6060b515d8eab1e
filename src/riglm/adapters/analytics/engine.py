"""Connections to the database, and its errors in riglm's words."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from riglm.domain.errors import AnalyticsUnavailable

BUSY_TIMEOUT_MS: Final = 5000
"""How long a statement waits for another process that holds the SQLite database."""

_CACHE_KIB: Final = 512
"""The most memory for pages, a quarter of SQLite's own: riglm mostly appends, and what was used once stays with it."""

_WAL_PAUSE_SECONDS: Final = 0.01
_WRITING: Final = "riglm_writing"


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn every failure of the database at `url` into `AnalyticsUnavailable`."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError, ImportError) as error:
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise AnalyticsUnavailable(f"the analytics store {safe_url(url)} cannot be used: {reason}") from error


def safe_url(url: str) -> str:
    """The URL without its password; an unreadable one is not shown at all."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return "(unreadable URL)"


def make_engine(url: str, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Engine:
    """An engine that has not connected yet."""
    place = make_url(url)
    if place.get_backend_name() != "sqlite":
        return create_engine(place, hide_parameters=True)
    engine = create_engine(place, hide_parameters=True, connect_args={"timeout": busy_timeout_ms / 1000})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that holds the right to write from its start, so that it cannot fail half-way for want of it."""
    with engine.execution_options(**{_WRITING: True}).begin() as connection:
        yield connection


def sqlite_file(url: str) -> Path | None:
    """The database file that `url` names, if it names one."""
    place: URL = make_url(url)
    if place.get_backend_name() != "sqlite" or not place.database or place.database.startswith((":memory:", "file:")):
        return None
    return Path(place.database)


def prepare(engine: Engine, url: str) -> None:
    """Make a missing SQLite file, readable by its owner alone, and let readers work beside the writer."""
    file = sqlite_file(url)
    if file is None:
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Only a missing file may be opened here: closing any descriptor of a file drops every POSIX lock that this process
    # holds on it, those of its other SQLite connections too (sqlite.org/howtocorrupt.html, section 2.2).
    if not file.exists():
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o600))
    raw = engine.raw_connection()
    try:
        use_wal(raw.cursor())
    finally:
        raw.close()


def use_wal(cursor: Any) -> None:
    """Change the journal's mode; SQLite does not wait for another process that does the same, so this does."""
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(_WAL_PAUSE_SECONDS)
        else:
            return


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver begins no transactions: _begin_sqlite does
    connection.execute("PRAGMA synchronous=NORMAL").close()
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}").close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITING, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
