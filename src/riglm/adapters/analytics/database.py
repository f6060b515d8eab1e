"""A database that is opened and closed, and what is done in it."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine

from riglm.adapters.analytics.engine import BUSY_TIMEOUT_MS, make_engine, safe_url, translated, writing
from riglm.adapters.analytics.schema import bring_up_to_date
from riglm.domain.errors import AnalyticsUnavailable


class Database:
    """The database that a SQLAlchemy URL names; every failure of it arrives as `AnalyticsUnavailable`.

    `busy_timeout_ms` is how long a statement waits for another process that holds a SQLite database. One object may
    serve several threads.
    """

    def __init__(self, url: str, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        self._url = url
        self._busy_timeout_ms = busy_timeout_ms
        self._engine: Engine | None = None

    @property
    def is_open(self) -> bool:
        """Whether it was opened and not closed since."""
        return self._engine is not None

    def open(self) -> None:
        """Connect, and bring the schema up to date. Raises `SchemaTooNew` when a newer riglm wrote the database."""
        with translated(self._url):
            engine = make_engine(self._url, self._busy_timeout_ms)
            try:
                bring_up_to_date(engine, self._url)
            except BaseException:
                engine.dispose()
                raise
        self._engine = engine

    def close(self) -> None:
        """Close all connections."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read from."""
        with translated(self._url), self._opened().connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction to write in."""
        with translated(self._url), writing(self._opened()) as connection:
            yield connection

    def _opened(self) -> Engine:
        if self._engine is None:
            raise AnalyticsUnavailable(f"the analytics store {safe_url(self._url)} is not open: enter it first")
        return self._engine
