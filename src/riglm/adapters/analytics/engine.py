"""Connections to the database, and its errors in riglm's words."""

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError

from riglm.adapters.analytics import sqlite, store_file
from riglm.adapters.analytics.sqlite import SECONDS, WRITES
from riglm.domain.errors import AnalyticsUnavailableError, NoStoreError, full_disk, shortage_in
from riglm.domain.redaction import mask_url

TIMEOUT_SECONDS: Final = 5.0
"""How long a record may wait for the database: for another process that holds it, or for the server's answer."""

LONG_SECONDS: Final = 60.0
"""How long a question or a piece of maintenance may take."""

FAILURES: Final = (SQLAlchemyError, sqlite3.Error, OSError, ImportError)
"""What is raised while a database cannot be used."""

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
    reason, file = reason_of(error), sqlite.database_file(url)
    if file is not None and _DISK_FULL in reason:
        return full_disk(file)
    return shortage_in(error) or reason


def _is_ours(url: str) -> bool:
    file = sqlite.database_file(url)
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
        return sqlite.parsed(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return "(unreadable URL)"


def is_postgresql(url: str) -> bool:
    """Whether the URL names a PostgreSQL server."""
    return url.startswith(_POSTGRESQL)


def make_engine(url: str, *, timeout: float = TIMEOUT_SECONDS, durable: bool = False) -> Engine:
    """An engine that has not connected yet.

    A statement waits at most `timeout` seconds for another process that holds the database, and for a server's answer.
    With `durable` a commit on SQLite survives a power cut; on PostgreSQL it always does.
    """
    if is_postgresql(url):
        try:
            from riglm.adapters.analytics import postgresql  # noqa: PLC0415  # the driver is an extra
        except ImportError as error:
            raise AnalyticsUnavailableError(
                "PostgreSQL's driver is not installed — fix: pip install 'riglm[postgresql]'"
            ) from error
        return postgresql.make_engine(url, timeout)
    if sqlite.parsed(url).get_backend_name() != "sqlite":
        raise AnalyticsUnavailableError(
            f"the analytics store {safe_url(url)} cannot be used: it is neither SQLite nor PostgreSQL — fix: write "
            "sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        )
    return sqlite.make_engine(url, timeout, durable=durable)


@contextmanager
def writing(engine: Engine, *, seconds: float | None = None) -> Iterator[Connection]:
    """Return a transaction to write in; the statement timeout is `seconds`, by default that of the engine.

    On SQLite it holds the right to write from its start, so that it cannot fail half-way for want of it.
    """
    with engine.execution_options(**{WRITES: True, SECONDS: seconds}).begin() as connection:
        yield connection


@contextmanager
def reading(engine: Engine, *, seconds: float | None = LONG_SECONDS) -> Iterator[Connection]:
    """Return a transaction to read in; the statement timeout is `seconds`, with None that of the engine."""
    with engine.execution_options(**{SECONDS: seconds}).connect() as connection:
        yield connection


def lease(engine: Engine, url: str) -> AbstractContextManager[bool]:
    """Hold the maintenance lease while the block runs; yields False if another process holds it."""
    if engine.dialect.name == "sqlite":
        return sqlite.lease(url)
    from riglm.adapters.analytics import postgresql  # noqa: PLC0415  # see make_engine

    return postgresql.lease(engine)
