"""What recording costs a call, and how many records a second the writer keeps up with."""

import asyncio
import gc
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.stores.postgres import PostgresServer

from riglm.adapters.analytics.engine import memory_database
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.application.tracking.recorder import QueueLimits, Recorder
from riglm.application.tracking.tracking_service import TrackingService
from riglm.domain.hashing import KeyedHasher
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.session import IdentificationMethod, ProtocolEra, Session, Transport
from riglm.ports.analytics import AnalyticsPort

ARGUMENTS = b'{"owner":"octo","repo":"hello","query":"is:open label:bug","page":2}'
QUIET_CALLS = 5_000
STEADY_CALLS = 60_000


def a_session() -> Session:
    return Session(
        started_at=time.time(), era=ProtocolEra.MODERN, transport=Transport.STDIO, method=IdentificationMethod.PROCESS
    )


def call(tracking: TrackingService, session: Session, tool: str) -> None:
    tracking.called(
        session,
        tool=tool,
        upstream="github",
        arguments=ARGUMENTS,
        sequence_number=session.next_sequence_number(),
        started=time.time(),
        duration_ms=1.5,
        error_kind=None,
        error_code=None,
        found=DiscoveryMethod.LISTED,
    )


def enqueue_costs(open_store: Callable[[], AnalyticsPort], pause: float) -> list[float]:
    """Microseconds of each `called`, with so many seconds between two calls."""
    costs = []
    with Recorder(open_store, limits=QueueLimits(records=STEADY_CALLS + 10)) as recorder:
        tracking = TrackingService(recorder.put, KeyedHasher(bytes(32)), "hash")
        session = a_session()
        tracking.session_opened(session)
        recorder.flush(30)
        gc.freeze()
        for _ in range(QUIET_CALLS):
            if pause:
                time.sleep(pause)
            start = time.perf_counter_ns()
            call(tracking, session, "search_issues")
            costs.append((time.perf_counter_ns() - start) / 1000)
        recorder.flush(60)
    return sorted(costs)


def sustained(open_store: Callable[[], AnalyticsPort]) -> float:
    """Records a second from the first call until the last one is stored."""
    with Recorder(open_store, limits=QueueLimits(records=STEADY_CALLS + 10, size_bytes=1 << 30)) as recorder:
        tracking = TrackingService(recorder.put, KeyedHasher(bytes(32)), "hash")
        sessions = [a_session() for _ in range(50)]
        for session in sessions:
            tracking.session_opened(session)
        recorder.flush(30)
        start = time.perf_counter()
        for number in range(STEADY_CALLS):
            call(tracking, sessions[number % 50], f"tool_{number % 20}")
        recorder.flush(120)
        seconds = time.perf_counter() - start
        assert recorder.counts().stored == STEADY_CALLS + 50
    return STEADY_CALLS / seconds


def loop_lags(open_store: Callable[[], AnalyticsPort]) -> list[float]:
    """By how many milliseconds an event loop that records 1,000 calls a second wakes up late."""
    lags = []

    async def record(tracking: TrackingService, session: Session) -> None:
        for _ in range(QUIET_CALLS):
            due = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            lags.append((time.perf_counter() - due) * 1000)
            call(tracking, session, "search_issues")

    with Recorder(open_store) as recorder:
        tracking = TrackingService(recorder.put, KeyedHasher(bytes(32)), "hash")
        session = a_session()
        tracking.session_opened(session)
        recorder.flush(30)
        asyncio.run(record(tracking, session))
    return sorted(lags)


def refresh_time(open_store: Callable[[], AnalyticsPort]) -> float:
    """Seconds that co-occurrence takes over all that was recorded so far."""
    with open_store() as store:
        start = time.perf_counter()
        store.refresh_cooccurrences(time.time())
        return time.perf_counter() - start


def percentile(ascending: list[float], share: float) -> str:
    return f"{ascending[min(len(ascending) - 1, int(len(ascending) * share))]:.1f}"


def main() -> None:
    table = Table(title="Recording", title_justify="left")
    for column in (
        "store",
        "enqueue in a row: p50, p99, max µs",
        "at ~1,000/s: p50, p99, max µs",
        "loop lag: p50, p99, max ms",
        "records/s",
        "refresh",
    ):
        table.add_column(column, justify="left" if column == "store" else "right")
    with tempfile.TemporaryDirectory() as directory, PostgresServer(fsync="on") as server, memory_database() as memory:
        stores: dict[str, Callable[[], AnalyticsPort]] = {
            "SQLite in memory": lambda: SqlAnalytics(memory),
            "SQLite, WAL, NORMAL": lambda: SqlAnalytics(f"sqlite:///{Path(directory) / 'usage.db'}"),
            "PostgreSQL, fsync": lambda: SqlAnalytics(server.url),
        }
        for name, open_store in stores.items():
            cells = []
            for pause in (0.0, 0.001):
                costs = enqueue_costs(open_store, pause)
                cells.append(f"{percentile(costs, 0.5)}, {percentile(costs, 0.99)}, {costs[-1]:.0f}")
            lags = loop_lags(open_store)
            cells.append(f"{percentile(lags, 0.5)}, {percentile(lags, 0.99)}, {lags[-1]:.1f}")
            table.add_row(name, *cells, f"{sustained(open_store):,.0f}", f"{refresh_time(open_store):.2f} s")
    Console(width=150).print(table)
    print(f"{os.cpu_count()} cores, {QUIET_CALLS:,} calls timed, {STEADY_CALLS:,} stored for the rate")


if __name__ == "__main__":
    main()
