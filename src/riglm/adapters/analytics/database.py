"""A database that is opened and closed, and what is done in it."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

import sqlalchemy as sa

from riglm.adapters.analytics.engine import (
    APART,
    FAILURES,
    LONG_SECONDS,
    SECONDS,
    TIMEOUT_SECONDS,
    database_file,
    is_damage,
    lease,
    make_engine,
    reading,
    reason_of,
    safe_url,
    translated,
    unavailable,
    writing,
)
from riglm.adapters.analytics.store_file import StoreFile, make
from riglm.adapters.analytics.tables import bring_up_to_date
from riglm.domain.errors import AnalyticsUnavailableError, NoStoreError

_SOUND_SECONDS: Final = 5.0  # for which a check counts: narrowing a batch down to one record checks the file once
_APART_SECONDS: Final = 3600.0

_log: Final = logging.getLogger("riglm.analytics")
_Answer = TypeVar("_Answer")


class FileReplacedError(AnalyticsUnavailableError):
    """The file was replaced, quarantined or repaired meanwhile: the operation must be repeated in the current one."""


class FalseCorruptionError(AnalyticsUnavailableError):
    """SQLite calls the file damaged in what was done, and finds no damage when it checks all of it."""


class FileConnection:
    """Connections through `engine` to the database at a URL, in SQLite to the file that is there when they begin.

    Every failure arrives as `AnalyticsUnavailableError`. With `is_quarantining` a file that proves damaged is mended,
    or set aside.
    """

    def __init__(self, url: str, engine: sa.Engine, *, is_quarantining: bool) -> None:
        self.engine = engine
        self._url = url
        self._sets_aside = is_quarantining
        self._file: StoreFile | None = None
        self._is_aside = False
        self._sound_until = 0.0
        self._appending = threading.Lock()
        self._appender: sa.PoolProxiedConnection | None = None

    @property
    def is_in_place(self) -> bool:
        """Whether the file, if there is one, still is the database's."""
        return self._file is None or self._file.is_in_place

    def begin(self) -> None:
        """Connect, and bring the schema up to date.

        Raises `SchemaTooNewError` when a newer riglm wrote the database, `FileReplacedError` when it was set aside.
        """
        try:
            with translated(self._url):
                if (path := database_file(self._url)) is not None:
                    make(path)
                    self._file = StoreFile(path)
                    self._file.look()
                bring_up_to_date(self.engine, self._url)
        except AnalyticsUnavailableError as error:
            self.run_once(error)
            raise
        if self._file is not None:
            self._file.note_ours()
            self._file.note_journal()

    def run_once(self, error: Exception) -> None:
        """Raise `FileReplacedError` when the file was replaced, or is damaged and now mended or set aside.

        Raises `FalseCorruptionError` when SQLite checked it recently and found no damage.
        """
        if isinstance(error, AnalyticsUnavailableError) and not self.is_in_place:
            raise FileReplacedError(f"{error}; the file was replaced meanwhile") from error
        if not self._sets_aside or self._file is None or isinstance(error, NoStoreError) or not is_damage(error):
            return
        if time.monotonic() >= self._sound_until:
            self._mend(self._file, error)
            self._sound_until = time.monotonic() + _SOUND_SECONDS
        raise FalseCorruptionError(f"{reason_of(error)}, and a check of the whole file finds no damage") from error

    def _mend(self, file: StoreFile, error: Exception) -> None:
        try:
            with translated(self._url):
                is_mended = file.mend()
        except AnalyticsUnavailableError as failure:
            raise AnalyticsUnavailableError(f"{error}; it was not set aside: {failure}") from error
        if is_mended:
            self._is_aside = not self.is_in_place
            raise FileReplacedError(
                f"the file of the analytics store {safe_url(self._url)} was mended or set aside"
            ) from error

    def append(self, work: Callable[[sqlite3.Connection], bool]) -> bool:
        """Call `work` in a transaction on a connection that stays open; False if there is no file."""
        if self._file is None:
            return False
        with self._appending:
            self._file.extend_index()
            if self._appender is None:
                self._appender = self.engine.raw_connection()
            connection = cast("sqlite3.Connection", self._appender.driver_connection)
            try:
                connection.execute("BEGIN IMMEDIATE")
                if is_done := work(connection):
                    connection.execute("COMMIT")
                return is_done
            finally:
                if connection.in_transaction:
                    connection.rollback()

    def close(self) -> None:
        """End all connections; the journal of a file that was replaced is kept from the one that came."""
        try:
            if self._file is not None and not self._file.is_in_place:
                if not self._is_aside:
                    _log.warning("the file of %s was removed or replaced", safe_url(self._url))
                with translated(self._url):
                    self._file.take_journal_away()
        finally:
            if self._appender is not None:
                self._appender.close()
            self.engine.dispose()


class Database:
    """The database at a URL, of SQLite or PostgreSQL; every failure of it arrives as `AnalyticsUnavailableError`.

    `timeout` is how many seconds a statement waits for another process that holds the database, or for the server's
    answer; with `durable` what SQLite committed survives a power cut. One object may serve several threads.

    A removed or replaced SQLite file is noticed by the next operation, which uses the current file. With
    `is_quarantining` a file that proves damaged is put out of the way, and an empty one begun.
    """

    def __init__(
        self, url: str, *, timeout: float = TIMEOUT_SECONDS, durable: bool = False, is_quarantining: bool = False
    ) -> None:
        self._url = url
        self._timeout = timeout
        self._durable = durable
        self._sets_aside = is_quarantining
        self._connecting = threading.RLock()
        self._is_open = False
        self._connected: FileConnection | None = None

    @property
    def is_open(self) -> bool:
        """Whether it was opened and not closed since."""
        return self._is_open

    def open(self) -> None:
        """Connect and migrate the schema. Raises `SchemaTooNewError` if a newer riglm wrote the database."""
        with self._connecting:
            self._connected = self._connect()
            self._is_open = True

    def close(self) -> None:
        """Close all connections."""
        with self._connecting:
            self._is_open = False
            connected, self._connected = self._connected, None
            if connected is not None:
                connected.close()

    @contextmanager
    def reading(self, *, seconds: float | None = LONG_SECONDS) -> Iterator[sa.Connection]:
        """Return a connection to read from; the statement timeout is `seconds`, with None `timeout`."""
        with self._used() as used, translated(self._url), reading(used.engine, seconds=seconds) as connection:
            yield connection

    @contextmanager
    def writing(self, *, seconds: float | None = None) -> Iterator[sa.Connection]:
        """Return a transaction to write in; the statement timeout is `seconds`, by default `timeout`.

        Raises `FileReplacedError` if it may have been written to a file that was replaced.
        """
        with self._used() as used:
            with translated(self._url), writing(used.engine, seconds=seconds) as connection:
                yield connection
            self._check_place(used)

    def append(self, work: Callable[[sqlite3.Connection], bool]) -> bool:
        """Call `work` in a transaction of SQLite's driver, undone unless it returns True; False without a file.

        It is for short transactions, of which SQLAlchemy and context managers would take the most time. Raises
        `FileReplacedError` as `writing` does.
        """
        used = self._in_place()
        try:
            try:
                is_done = used.append(work)
            except FAILURES as error:
                raise unavailable(self._url, error) from error
            self._check_place(used)
        except Exception as error:
            used.run_once(error)
            raise
        return is_done

    def _check_place(self, used: FileConnection) -> None:
        if not used.is_in_place:
            raise FileReplacedError(f"the file of the analytics store {safe_url(self._url)} was replaced meanwhile")

    @contextmanager
    def apart(self) -> Iterator[sa.Connection]:
        """Return a connection without transactions whose statements may take an hour."""
        with self._used() as used, translated(self._url):
            options = {APART: True, SECONDS: _APART_SECONDS}
            with used.engine.execution_options(**options).connect() as connection:
                try:
                    yield connection
                finally:
                    connection.invalidate()  # it is not reused

    @contextmanager
    def lease(self) -> Iterator[bool]:
        """Hold the maintenance lease while the block runs; yields False if another process holds it."""
        with ExitStack() as held:
            with translated(self._url):
                mine = held.enter_context(lease(self._in_place().engine, self._url))
            yield mine

    @contextmanager
    def _used(self) -> Iterator[FileConnection]:
        used = self._in_place()
        try:
            yield used
        except Exception as error:
            used.run_once(error)
            raise

    def _in_place(self) -> FileConnection:
        """Return the connections, reopened if the database's file was replaced."""
        with self._connecting:
            if not self._is_open:
                raise AnalyticsUnavailableError(
                    f"the analytics store {safe_url(self._url)} is not open: enter it first"
                )
            if self._connected is not None and not self._connected.is_in_place:
                self._connected.close()
                self._connected = None
            if self._connected is None:
                self._connected = self._connect()
            return self._connected

    def _connect(self) -> FileConnection:
        """Connect; once more when a damaged file was set aside."""
        with suppress(FileReplacedError):
            return self._connect_once()
        return self._connect_once()

    def _connect_once(self) -> FileConnection:
        with translated(self._url):
            engine = make_engine(self._url, timeout=self._timeout, durable=self._durable)
        new = FileConnection(self._url, engine, is_quarantining=self._sets_aside)
        try:
            new.begin()
        except BaseException:
            new.close()
            raise
        return new


class SqlStore:
    """A store whose methods are questions to a database; `names` gives the keyed hash of a client's name."""

    _database: Database
    _names: Callable[[str], str]

    def _remove_found(
        self, query: sa.Select[Any], remove: Callable[[sa.Connection, Sequence[Any]], _Answer]
    ) -> Iterator[_Answer]:
        """Remove what a query finds until it finds nothing, in steps: each is a short transaction, with one answer."""
        while True:
            with self._database.reading() as connection:
                found = connection.execute(query).scalars().all()
            if not found:
                return
            with self._database.writing() as connection:
                answer = remove(connection, found)
            yield answer


_Store = TypeVar("_Store", bound=SqlStore)
_Given = ParamSpec("_Given")


def reads(
    query: Callable[Concatenate[_Store, sa.Connection, _Given], _Answer], *, seconds: float | None = LONG_SECONDS
) -> Callable[Concatenate[_Store, _Given], _Answer]:
    """Provide a query method with a connection to read from; a statement may take a minute."""

    @wraps(query)
    def run(self: _Store, *given: _Given.args, **named: _Given.kwargs) -> _Answer:
        with self._database.reading(seconds=seconds) as connection:  # wraps a method of this class
            return query(self, connection, *given, **named)

    return cast("Callable[Concatenate[_Store, _Given], _Answer]", run)


def reads_quickly(
    query: Callable[Concatenate[_Store, sa.Connection, _Given], _Answer],
) -> Callable[Concatenate[_Store, _Given], _Answer]:
    """Provide a query method with a connection to read from; a statement takes no longer than a record may."""
    return reads(query, seconds=None)
