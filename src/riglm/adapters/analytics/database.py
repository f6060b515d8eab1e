"""A database that is opened and closed, and what is done in it."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from sqlalchemy import Connection, Engine

from riglm.adapters.analytics import sqlite
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
from riglm.adapters.analytics.schema import bring_up_to_date
from riglm.domain.errors import AnalyticsUnavailable

_log: Final = logging.getLogger("riglm.analytics")


class Database:
    """The database at a URL, of SQLite or PostgreSQL; every failure of it arrives as `AnalyticsUnavailable`.

    `timeout` is how many seconds a statement waits for another process that holds the database, or for the server's
    answer; with `durable` what SQLite committed survives a power cut. One object may serve several threads.
    """

    def __init__(self, url: str, *, timeout: float = TIMEOUT_SECONDS, durable: bool = False) -> None:
        self._url = url
        self._timeout = timeout
        self._durable = durable
        self._engine: Engine | None = None
        self._identity: tuple[int, int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it was opened and not closed since."""
        return self._engine is not None

    def open(self) -> None:
        """Connect, and bring the schema up to date. Raises `SchemaTooNew` when a newer riglm wrote the database."""
        with translated(self._url):
            engine = make_engine(self._url, timeout=self._timeout, durable=self._durable)
            try:
                bring_up_to_date(engine, self._url)
            except BaseException:
                engine.dispose()
                raise
        self._engine, self._identity = engine, sqlite.identity(self._url)

    def follow_file(self) -> None:
        """Open the database anew when its file was removed or replaced: what is written to the old one is lost.

        Raises `AnalyticsUnavailable` when it cannot be; then the database is closed.
        """
        if self._engine is None or self._identity is None:
            return
        now = sqlite.identity(self._url)
        if now is None or (now == self._identity and any(now)):
            return
        _log.warning("%s was removed or replaced by others; records go into the new file", safe_url(self._url))
        self.close()
        self.open()

    def close(self) -> None:
        """Close all connections."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    @contextmanager
    def reading(self, *, seconds: float | None = LONG_SECONDS) -> Iterator[Connection]:
        """A connection to read from; a statement may take so many seconds, with None `timeout`."""
        with translated(self._url), reading(self._opened(), seconds=seconds) as connection:
            yield connection

    @contextmanager
    def writing(self, *, seconds: float | None = None) -> Iterator[Connection]:
        """A transaction to write in; a statement may take so many seconds, by default `timeout`."""
        with translated(self._url), writing(self._opened(), seconds=seconds) as connection:
            yield connection

    @contextmanager
    def apart(self) -> Iterator[Connection]:
        """A connection whose statements stand outside of any transaction and may take an hour."""
        with translated(self._url), apart(self._opened()) as connection:
            yield connection

    @contextmanager
    def lease(self) -> Iterator[bool]:
        """Hold the right to maintain the database while the block runs, if nobody else does; whether it was got."""
        with ExitStack() as held:
            with translated(self._url):
                mine = held.enter_context(lease(self._opened(), self._url))
            yield mine

    def _opened(self) -> Engine:
        if self._engine is None:
            raise AnalyticsUnavailable(f"the analytics store {safe_url(self._url)} is not open: enter it first")
        return self._engine
