"""Connections to the database, its errors in riglm's words, and what is particular to SQLite."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError

from riglm.adapters.analytics import store_file
from riglm.domain.errors import AnalyticsUnavailableError, NoStoreError, full_disk, missing_extra, shortage_in
from riglm.domain.redaction import mask_url

TIMEOUT_SECONDS: Final = 5.0
"""How long a record may wait for the database: for another process that holds it, or for the server's answer."""

LONG_SECONDS: Final = 60.0
"""How long a question or a piece of maintenance may take."""

FAILURES: Final = (SQLAlchemyError, sqlite3.Error, OSError, ImportError)
"""What is raised while a database cannot be used."""

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

_DAMAGED: Final = (
    " — fix: the file is damaged; put a backup in its place, or let `riglm run` or `riglm serve` mend it or set it "
    "aside, which they do when they meet the damage"
)
_FOREIGN: Final = (
    " — fix: this file is not a database of riglm and is left unchanged; name a different one in storage.path or "
    "RIGLM_DATA_DIR, or move it"
)
_DISK_FULL: Final = "database or disk is full"
_CONFLICTS: Final = frozenset({"40001", "40P01"})  # a serialization failure, a deadlock
_POSTGRESQL: Final = ("postgresql://", "postgres://")


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn every failure of the database at `url` into `AnalyticsUnavailableError`."""
    try:
        yield
    except FAILURES as error:
        raise unavailable(url, error) from error


def unavailable(url: str, error: Exception) -> AnalyticsUnavailableError:
    """A failure of the database at `url` in riglm's words; `NoStoreError` when there is something else at its place."""
    message = f"the analytics store {safe_url(url)} cannot be used: {_reason(url, error)}"
    if not is_damage(error):
        return AnalyticsUnavailableError(message)
    return AnalyticsUnavailableError(f"{message}{_DAMAGED}") if _is_ours(url) else NoStoreError(f"{message}{_FOREIGN}")


def _reason(url: str, error: Exception) -> str:
    """The reason of a failure; of a full disk which one it is, and the fix."""
    reason, file = reason_of(error), database_file(url)
    if file is not None and _DISK_FULL in reason:
        return full_disk(file)
    return shortage_in(error) or reason


def _is_ours(url: str) -> bool:
    file = database_file(url)
    try:
        return file is None or store_file.is_ours(file)
    except OSError:
        return False


def is_damage(error: BaseException | None) -> bool:
    """Whether a failure, or what caused it, is SQLite's word that the file is damaged or no database."""
    while error is not None:
        if store_file.is_damage(error):
            return True
        error = error.__cause__
    return False


def reason_of(error: Exception) -> str:
    """Return a failure on one line, without the values of rows, which PostgreSQL includes as its details."""
    reason: object = error.orig if isinstance(error, StatementError) else error
    diagnosis = getattr(reason, "diag", None)
    return " ".join(str(getattr(diagnosis, "message_primary", None) or reason).split())


def is_conflict(error: AnalyticsUnavailableError) -> bool:
    """True if a transaction only failed because of a concurrent one, so that a retry may succeed."""
    cause = error.__cause__
    return isinstance(cause, DBAPIError) and getattr(cause.orig, "sqlstate", None) in _CONFLICTS


def safe_url(url: str) -> str:
    """The URL without its secrets; an unreadable one is not shown at all."""
    if not url.startswith("sqlite"):
        return mask_url(url)
    try:
        return parsed(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return "(unreadable URL)"


def is_postgresql(url: str) -> bool:
    """Whether the URL names a PostgreSQL server."""
    return url.startswith(_POSTGRESQL)


def make_engine(url: str, *, timeout: float = TIMEOUT_SECONDS, durable: bool = False) -> sa.Engine:
    """An engine that has not connected yet.

    A statement waits at most `timeout` seconds for another process that holds the database, and for a server's answer.
    With `durable` a commit on SQLite survives a power cut; on PostgreSQL it always does.
    """
    if is_postgresql(url):
        try:
            from riglm.adapters.analytics import postgresql  # noqa: PLC0415  # the driver is an extra
        except ImportError as error:
            raise AnalyticsUnavailableError(missing_extra("PostgreSQL's driver", "postgresql")) from error
        return postgresql.make_engine(url, timeout)
    if parsed(url).get_backend_name() != "sqlite":
        raise AnalyticsUnavailableError(
            f"the analytics store {safe_url(url)} cannot be used: it is neither SQLite nor PostgreSQL — fix: write "
            "sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        )
    return _sqlite_engine(url, timeout, durable=durable)


@contextmanager
def writing(engine: sa.Engine, *, seconds: float | None = None) -> Iterator[sa.Connection]:
    """Return a transaction to write in; the statement timeout is `seconds`, by default that of the engine.

    On SQLite it holds the right to write from its start, so that it cannot fail half-way for want of it.
    """
    with engine.execution_options(**{WRITES: True, SECONDS: seconds}).begin() as connection:
        yield connection


@contextmanager
def reading(engine: sa.Engine, *, seconds: float | None = LONG_SECONDS) -> Iterator[sa.Connection]:
    """Return a transaction to read in; the statement timeout is `seconds`, with None that of the engine."""
    with engine.execution_options(**{SECONDS: seconds}).connect() as connection:
        yield connection


def lease(engine: sa.Engine, url: str) -> AbstractContextManager[bool]:
    """Hold the maintenance lease while the block runs; yields False if another process holds it."""
    if engine.dialect.name == "sqlite":
        return _file_lease(url)
    from riglm.adapters.analytics import postgresql  # noqa: PLC0415  # see make_engine

    return postgresql.lease(engine)


def _sqlite_engine(url: str, timeout: float, *, durable: bool) -> sa.Engine:
    """An engine for SQLite that makes a missing file; statements wait `timeout` seconds for others."""
    file = database_file(url)
    engine = sa.create_engine(parsed(url), hide_parameters=True, connect_args={"timeout": timeout})

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

    def begin(connection: sa.Connection) -> None:
        if file is not None:
            store_file.extend_index(file)
        options = connection.get_execution_options()
        if not options.get(APART):
            connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(WRITES) else "BEGIN")

    def close(_connection: Any, _record: Any) -> None:
        if file is not None:
            store_file.extend_index(file)  # the last connection writes the journal back

    if parsed(url).database:
        sa.event.listen(engine, "do_connect", name_database)
    sa.event.listen(engine, "connect", set_up)
    sa.event.listen(engine, "begin", begin)
    sa.event.listen(engine, "close", close)
    return engine


def parsed(url: str) -> sa.URL:
    """Return a URL as SQLAlchemy has it; all that follows `sqlite:///` is the file, with any characters."""
    return sa.URL.create("sqlite", database=url.removeprefix(_FILE)) if url.startswith(_FILE) else sa.make_url(url)


def database_file(url: str) -> Path | None:
    """The database file that `url` names, if it names one."""
    if not url.startswith("sqlite"):
        return None
    place = parsed(url)
    if not place.database or place.database.startswith((":memory:", "file:")):
        return None
    return Path(place.database)


def prepare(engine: sa.Engine, url: str) -> None:
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
def _file_lease(url: str) -> Iterator[bool]:
    """Hold the exclusive lock on a database next to this one, to which others write; yields False if it is taken."""
    file = database_file(url)
    if file is not None:
        with store_file.locked(file.with_name(f"{file.name}-lease"), timeout=0) as mine:
            yield mine
        return
    database = (parsed(url).database or "").replace(_IN_MEMORY, f"-lease{_IN_MEMORY}")
    with closing(sqlite3.connect(database, uri=True, timeout=0, isolation_level=None)) as connection:
        yield store_file.is_locked_by(connection)
