"""The stores that are measured, and what is found in them afterwards."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.stores.clickhouse import ClickHouseStandIn
from tests.stores.postgres import Databases, PostgresServer

from riglm.adapters.analytics import tables
from riglm.adapters.analytics.clickhouse import ClickHouse
from riglm.adapters.analytics.sql import SqlAnalytics

_COUNT = "SELECT count(*) FROM invocation"
_BY_SESSION = "SELECT session_id, count(*), count(DISTINCT sequence_number) FROM invocation GROUP BY session_id"


@dataclass(frozen=True, slots=True)
class Store:
    """A database that riglm records into; `server` is what runs it, if anything does."""

    url: str
    file: Path | None = None
    server: PostgresServer | ClickHouseStandIn | None = None

    @property
    def settings(self) -> dict[str, str]:
        """What tells riglm of it."""
        if self.file is not None:
            return {"RIGLM_STORAGE__PATH": str(self.file)}
        return {"RIGLM_STORAGE__URL": self.url}

    def open(self) -> SqlAnalytics:
        """A new adapter for it, not yet open."""
        return SqlAnalytics(self.url)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """What a statement gives."""
        if self.file is not None:
            with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True, timeout=30)) as database:
                return database.execute(statement).fetchall()
        import psycopg

        with psycopg.connect(self.url, autocommit=True, connect_timeout=10) as connection:
            return connection.execute(statement.encode()).fetchall()

    @contextmanager
    def counting(self) -> Iterator[Callable[[], int]]:
        """What tells how many invocations are stored, over one connection, to be asked often."""
        if self.file is not None:
            with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True, timeout=30)) as database:
                yield lambda: int(database.execute(_COUNT).fetchone()[0])
            return
        import psycopg

        with psycopg.connect(self.url, autocommit=True, connect_timeout=10) as connection:
            yield lambda: int(connection.execute(_COUNT).fetchall()[0][0])

    def calls(self) -> int:
        """How many invocations are stored; 0 while that cannot be asked."""
        try:
            return int(self.ask(_COUNT)[0][0])
        except Exception:  # noqa: BLE001  # it is away, or has no tables yet
            return 0

    def by_session(self) -> dict[UUID, tuple[int, int]]:
        """For each session how many invocations are stored, and how many different ones."""
        return {_id(session): (count, different) for session, count, different in self.ask(_BY_SESSION)}

    def numbers(self, session: UUID) -> set[int]:
        """The sequence numbers of what is stored of a session."""
        shown = f"x'{session.hex}'" if self.file is not None else f"'{session}'"
        return {row[0] for row in self.ask(f"SELECT sequence_number FROM invocation WHERE session_id = {shown}")}

    def damage(self) -> int:
        """How many complaints the database's own check has; PostgreSQL has none to ask for."""
        if self.file is None:
            return 0
        return sum(row != ("ok",) for row in self.ask("PRAGMA integrity_check"))


class ClickHouseStore(Store):
    """A stand-in for ClickHouse that riglm sends to besides."""

    @property
    def settings(self) -> dict[str, str]:
        return {"RIGLM_CLICKHOUSE__URL": self.url}

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with ClickHouse(self.url, days=0, installation="one", timeout_seconds=10.0) as store:
            return [tuple(row.values()) for row in store._query(statement)]  # noqa: SLF001  # for any statement

    @contextmanager
    def counting(self) -> Iterator[Callable[[], int]]:
        yield self.calls


def _id(told: Any) -> UUID:
    return told if isinstance(told, UUID) else UUID(bytes=told)


@contextmanager
def sqlite(directory: Path) -> Iterator[Store]:
    """A SQLite file that riglm has not made yet."""
    file = directory / "riglm.db"
    yield Store(f"sqlite:///{file}", file)


@contextmanager
def postgresql(_directory: Path) -> Iterator[Store]:
    """A PostgreSQL server of its own, which waits for the disk as it does in earnest, with riglm's tables."""
    with PostgresServer(fsync="on") as server, Databases(server.url).empty() as url:
        tables.upgrade(url)
        yield Store(url, server=server)


@contextmanager
def clickhouse(directory: Path) -> Iterator[Store]:
    """The engine of ClickHouse behind a stand-in for its HTTP interface."""
    with ClickHouseStandIn(directory / "clickhouse") as server:
        yield ClickHouseStore(server.url, server=server)


STORES: dict[str, Callable[[Path], Any]] = {"sqlite": sqlite, "postgresql": postgresql}
