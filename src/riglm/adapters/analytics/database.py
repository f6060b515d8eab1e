"""A database that is opened and closed, and what is done in it."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sqlalchemy import Connection

from riglm.adapters.analytics.connected import Connected, FileChanged
from riglm.adapters.analytics.engine import (
    LONG_SECONDS,
    TIMEOUT_SECONDS,
    apart,
    lease,
    make_engine,
    reading,
    safe_url,
    translated,
    writing,
)
from riglm.domain.errors import AnalyticsUnavailable


class Database:
    """The database at a URL, of SQLite or PostgreSQL; every failure of it arrives as `AnalyticsUnavailable`.

    `timeout` is how many seconds a statement waits for another process that holds the database, or for the server's
    answer; with `durable` what SQLite committed survives a power cut. One object may serve several threads.

    A removed or replaced SQLite file is noticed by the next operation, which uses the current file. With
    `sets_aside` a file that proves damaged is put out of the way, and an empty one begun.
    """

    def __init__(
        self, url: str, *, timeout: float = TIMEOUT_SECONDS, durable: bool = False, sets_aside: bool = False
    ) -> None:
        self._url = url
        self._timeout = timeout
        self._durable = durable
        self._sets_aside = sets_aside
        self._connecting = threading.RLock()
        self._is_open = False
        self._connected: Connected | None = None

    @property
    def is_open(self) -> bool:
        """Whether it was opened and not closed since."""
        return self._is_open

    def open(self) -> None:
        """Connect, and bring the schema up to date. Raises `SchemaTooNew` when a newer riglm wrote the database."""
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
    def reading(self, *, seconds: float | None = LONG_SECONDS) -> Iterator[Connection]:
        """Return a connection to read from; the statement timeout is `seconds`, with None `timeout`."""
        with self._used() as used, translated(self._url), reading(used.engine, seconds=seconds) as connection:
            yield connection

    @contextmanager
    def writing(self, *, seconds: float | None = None) -> Iterator[Connection]:
        """Return a transaction to write in; the statement timeout is `seconds`, by default `timeout`.

        Raises `FileChanged` when it may have gone into a file that was replaced.
        """
        with self._used() as used:
            with translated(self._url), writing(used.engine, seconds=seconds) as connection:
                yield connection
            if not used.is_in_place:
                raise FileChanged(f"the file of the analytics store {safe_url(self._url)} was replaced meanwhile")

    @contextmanager
    def apart(self) -> Iterator[Connection]:
        """Return a connection without transactions whose statements may take an hour."""
        with self._used() as used, translated(self._url), apart(used.engine) as connection:
            yield connection

    @contextmanager
    def lease(self) -> Iterator[bool]:
        """Hold the maintenance lease while the block runs; yields False if another process holds it."""
        with ExitStack() as held:
            with translated(self._url):
                mine = held.enter_context(lease(self._in_place().engine, self._url))
            yield mine

    @contextmanager
    def _used(self) -> Iterator[Connected]:
        used = self._in_place()
        try:
            yield used
        except Exception as error:
            used.look_after(error)
            raise

    def _in_place(self) -> Connected:
        """Return the connections, reopened if the database's file was replaced."""
        with self._connecting:
            if not self._is_open:
                raise AnalyticsUnavailable(f"the analytics store {safe_url(self._url)} is not open: enter it first")
            if self._connected is not None and not self._connected.is_in_place:
                self._connected.close()
                self._connected = None
            if self._connected is None:
                self._connected = self._connect()
            return self._connected

    def _connect(self) -> Connected:
        """Connect; once more when a damaged file was set aside."""
        try:
            return self._connect_once()
        except FileChanged:
            return self._connect_once()

    def _connect_once(self) -> Connected:
        with translated(self._url):
            engine = make_engine(self._url, timeout=self._timeout, durable=self._durable)
        new = Connected(self._url, engine, sets_aside=self._sets_aside)
        try:
            new.begin()
        except BaseException:
            new.close()
            raise
        return new
