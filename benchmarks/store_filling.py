"""Stores filled with sessions as people have them, for benchmarks of what is done to a full store."""

import contextlib
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from riglm.adapters.analytics.engine import make_engine, writing
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.analytics.tables import invocation
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import DiscoveryMethod, ToolInvocation
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport, uuid7
from riglm.ports.analytics import AnalyticsPort, Record

TOOLS = tuple(f"server{number % 8}__tool_with_a_usual_name_{number}" for number in range(120))
_BATCH = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a session leaves: so many calls, so many lists, each of so many tools out of `TOOLS`."""

    calls: int = 12
    lists: int = 2
    shown: int = 20

    @property
    def records(self) -> int:
        """The records of one session."""
        return 1 + self.calls + self.lists


@contextlib.contextmanager
def sqlite_url() -> Iterator[str]:
    """A file of its own."""
    with tempfile.TemporaryDirectory(prefix="riglm-bench-") as directory:
        yield f"sqlite:///{Path(directory) / 'riglm.db'}"


@contextlib.contextmanager
def postgresql_url() -> Iterator[str]:
    """A server of its own, which waits for the disk as any server does."""
    from tests.stores.postgres import PostgresServer

    with PostgresServer(fsync="on") as server:
        yield server.url


STORES = {"sqlite": sqlite_url, "postgresql": postgresql_url}


def a_session_of(shape: Shape, started: float, chance: random.Random) -> list[Record]:
    """All records of one session that has ended."""
    session = Session(
        started_at=started,
        ended_at=started + 1800.0,
        era=ProtocolEra.HANDSHAKE,
        transport=Transport.HTTP,
        method=IdentificationMethod.CONNECTION,
        client=ClientInfo(name="claude-code", version="2.1.0"),
        client_id=f"{chance.randrange(200):032x}",
        principal=f"{chance.randrange(200):032x}",
        protocol_version="2025-11-25",
        tools_available=tuple(sorted(TOOLS)),
    )
    records: list[Record] = [session]
    for number in range(shape.lists):
        shown = tuple(chance.sample(TOOLS, shape.shown))
        hidden = tuple(sorted(set(TOOLS) - set(shown)))
        at = started + 600.0 * number
        records.append(
            Exposure(
                id=uuid7(),
                session_id=session.id,
                timestamp=at,
                shown=shown,
                hidden=hidden,
                predictor="hybrid",
                reason="context confidence 0.82",
                mode="enforce",
                surface="dynamic",
                tokens_shown=3_000,
                tokens_hidden=15_000,
                tokens_own=600,
            )
        )
    favourites = chance.sample(TOOLS, 6)
    for number in range(1, shape.calls + 1):
        tool = chance.choice(favourites)
        records.append(
            ToolInvocation(
                id=uuid7(),
                session_id=session.id,
                tool=tool,
                upstream=tool.split("__", 1)[0],
                timestamp=started + 100.0 * number,
                duration_ms=chance.expovariate(1 / 200.0),
                success=chance.random() > 0.05,
                sequence_number=number,
                arguments_hash=f"{chance.getrandbits(128):032x}",
                found=DiscoveryMethod.LISTED,
            )
        )
    return records


def fill(store: AnalyticsPort, rows: int, *, shape: Shape, first: float, days: float, console: Console) -> int:
    """Store about so many records, in sessions spread evenly over so many days from `first` on; their number."""
    chance = random.Random(7)
    sessions = max(1, rows // shape.records)
    stored = 0
    waiting: list[Record] = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("filling", total=sessions * shape.records)
        for number in range(sessions):
            waiting += a_session_of(shape, first + days * 86_400.0 * number / sessions, chance)
            if len(waiting) >= _BATCH or number == sessions - 1:
                store.record_many(waiting)
                stored += len(waiting)
                bar.advance(task, len(waiting))
                waiting = []
    return stored


_FURTHER = {
    "sqlite": {
        "id": "CAST(substr(id, 1, 8) || randomblob(8) AS BLOB)",
        "session_id": "CAST(substr(session_id, 1, 15) || x'{number:02x}' AS BLOB)",
        "arguments_hash": "lower(hex(randomblob(16)))",
        "duration_ms": "duration_ms * (0.5 + abs(random() % 1000) / 1000.0)",
    },
    "postgresql": {
        "id": "overlay(id::text placing right(gen_random_uuid()::text, 17) from 20)::uuid",
        "session_id": "overlay(session_id::text placing '{number:02x}' from 35)::uuid",
        "arguments_hash": "md5(random()::text)",
        "duration_ms": "duration_ms * (0.5 + random())",
    },
}
"""How a database makes another call of one; the sessions of a copy are one for each of the first."""


def multiply_calls(url: str, times: int) -> None:
    """Make so many times as many calls of those that are stored, in as many more sessions, within the database."""
    further = {**_FURTHER[url.split(":", 1)[0]], "timestamp": "timestamp + {number} * 977.0"}
    columns = [column.name for column in invocation.c]
    engine = make_engine(url)
    with writing(engine, seconds=600.0) as connection:
        connection.exec_driver_sql(f"CREATE TEMPORARY TABLE first_calls AS SELECT * FROM {invocation.name}")
        for number in range(1, times):
            values = ", ".join(further.get(name, name).format(number=number) for name in columns)
            connection.exec_driver_sql(
                f"INSERT INTO {invocation.name} ({', '.join(columns)}) SELECT {values} FROM first_calls"
            )
    engine.dispose()


@contextlib.contextmanager
def filled(kind: str, rows: int, console: Console, *, shape: Shape | None = None, days: float = 100.0) -> Iterator[str]:
    """The URL of a store that holds about so many records, the last of them 100 days old."""
    with STORES[kind]() as url:
        began = time.perf_counter()
        with SqlAnalytics(url) as store:
            first = time.time() - (100.0 + days) * 86_400.0
            stored = fill(store, rows, shape=shape or Shape(), first=first, days=days, console=console)
        seconds = time.perf_counter() - began
        console.print(f"{kind}: {stored:,} records stored in {seconds:.0f} s, {stored / seconds:,.0f} a second")
        yield url
