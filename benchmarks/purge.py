"""How long writers and the event loop wait while a million rows are purged: `python -m benchmarks.purge`.

One process holds what a riglm process holds: an event loop, a thread that stores a batch every 50 ms, and the thread
of maintenance that purges. The same is measured first without the purge, since a busy machine delays by itself.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from benchmarks.store_filling import STORES, Shape, a_session_of, filled, multiply_calls
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.application.tracking.maintenance import Maintenance, MaintenanceSchedule
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.retention import Expiry

_QUIET_SECONDS = 45.0
_TIMES = 20
_SHAPE = Shape(calls=19, lists=1)
_LOOP_MS = 1.0
_BATCH_PAUSE = 0.05
_BATCH = Shape(calls=7, lists=2)
_LIMIT_MS = 100.0
_MOST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lags:
    """How late something was, in milliseconds."""

    count: int
    p50: float
    p99: float
    max: float
    over_100: int

    def __str__(self) -> str:
        return f"{self.p50:.1f} / {self.p99:.1f} / {self.max:.1f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was seen on one store; sizes in bytes."""

    store: str
    rows: int
    removed: int
    seconds: float
    quiet_loop: Lags
    quiet_writer: Lags
    loop: Lags
    writer: Lags
    size_before: int
    size_after: int
    journal_most: int
    failed_batches: int
    load: float
    """How many processes of the whole machine wanted a core, on average of the last minutes."""


class Beside:
    """An event loop and a writer, at work while something else is done."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ending = threading.Event()
        self._loop_lags: list[float] = []
        self._batch_times: list[float] = []
        self.failed = 0
        self._journal = _journal(url)
        self.journal_most = 0
        self._threads = [
            threading.Thread(target=asyncio.run, args=(self._tick(),)),
            threading.Thread(target=self._write),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def lags(self) -> tuple[Lags, Lags]:
        """Of the event loop and of the writer, from the last time that was asked."""
        loop, self._loop_lags = self._loop_lags, []
        batches, self._batch_times = self._batch_times, []
        return _lags(loop), _lags(batches)

    async def _tick(self) -> None:
        while not self._ending.is_set():
            due = time.perf_counter() + _LOOP_MS / 1000
            await asyncio.sleep(_LOOP_MS / 1000)
            self._loop_lags.append((time.perf_counter() - due) * 1000)

    def _write(self) -> None:
        chance = random.Random(3)
        with SqlAnalytics(self._url) as store:
            while not self._ending.wait(_BATCH_PAUSE):
                batch = a_session_of(_BATCH, time.time(), chance)
                began = time.perf_counter()
                try:
                    store.record_many(batch)
                except AnalyticsUnavailableError as error:
                    self.failed += 1
                    print(f"a batch failed: {error}", file=sys.stderr)
                self._batch_times.append((time.perf_counter() - began) * 1000)
                if self._journal is not None and self._journal.exists():
                    self.journal_most = max(self.journal_most, self._journal.stat().st_size)


def measure(kind: str, rows: int, console: Console) -> Measured:
    """Fill a store, then purge it while others are at work."""
    with filled(kind, rows // _TIMES, console, shape=_SHAPE) as url, SqlAnalytics(url) as store:
        multiply_calls(url, _TIMES)
        before = store.size_bytes()
        expiry = Expiry.of_all(time.time() - 50 * 86_400.0, time.time())
        expired = store.count_expired(expiry).total
        with Beside(url) as beside:
            time.sleep(_QUIET_SECONDS)
            quiet = beside.lags()
            seconds = _purge(url, expiry, console)
            busy = beside.lags()
        left = store.count_expired(expiry).total
        return Measured(
            store=kind,
            rows=expired,
            removed=expired - left,
            seconds=round(seconds, 1),
            quiet_loop=quiet[0],
            quiet_writer=quiet[1],
            loop=busy[0],
            writer=busy[1],
            size_before=before,
            size_after=store.size_bytes(),
            journal_most=beside.journal_most,
            failed_batches=beside.failed,
            load=round(os.getloadavg()[1], 1),
        )


def _purge(url: str, expiry: Expiry, console: Console) -> float:
    """One round of maintenance as a riglm process does it, on a thread of its own; its seconds."""
    done = threading.Event()

    class Once(Maintenance):
        def run_once(self) -> bool:
            super().run_once()
            done.set()
            return True

    began = time.perf_counter()
    schedule = MaintenanceSchedule(delay=0.0, interval=_MOST_SECONDS)
    with (
        Once(lambda: SqlAnalytics(url), lambda: -1, expiry=lambda _: expiry, schedule=schedule),
        console.status("purging"),
    ):
        done.wait(_MOST_SECONDS)
    return time.perf_counter() - began


def _journal(url: str) -> Path | None:
    return Path(f"{urlsplit(url).path[1:]}-wal") if url.startswith("sqlite") else None


def _lags(found: list[float]) -> Lags:
    ascending = sorted(found) or [0.0]

    def at(share: float) -> float:
        return round(ascending[min(len(ascending) - 1, int(len(ascending) * share))], 2)

    over = sum(lag > _LIMIT_MS for lag in ascending)
    return Lags(count=len(found), p50=at(0.5), p99=at(0.99), max=round(ascending[-1], 2), over_100=over)


def _over(loop: Lags, writer: Lags) -> str:
    return f"{loop.over_100} of {loop.count:,}, {writer.over_100} of {writer.count:,}"


def show(measured: list[Measured], console: Console) -> None:
    """Print a table for people."""
    table = Table(title="Purge beside live work (milliseconds: p50 / p99 / max)", title_justify="left")
    for column in ("", *(each.store for each in measured)):
        table.add_column(column, justify="right" if column else "left")
    lines = {
        "rows purged": [f"{each.removed:,} of {each.rows:,}" for each in measured],
        "seconds": [f"{each.seconds:,.0f}" for each in measured],
        "rows a second": [f"{each.removed / each.seconds:,.0f}" for each in measured],
        "event loop late, without purge": [str(each.quiet_loop) for each in measured],
        "event loop late, with purge": [str(each.loop) for each in measured],
        "a batch of 10, without purge": [str(each.quiet_writer) for each in measured],
        "a batch of 10, with purge": [str(each.writer) for each in measured],
        "over 100 ms, without purge: loop, batches": [_over(each.quiet_loop, each.quiet_writer) for each in measured],
        "over 100 ms, with purge: loop, batches": [_over(each.loop, each.writer) for each in measured],
        "batches that failed": [str(each.failed_batches) for each in measured],
        "store, MB: before, after": [f"{each.size_before / 1e6:.0f}, {each.size_after / 1e6:.0f}" for each in measured],
        f"load of the machine with its {os.cpu_count()} cores": [f"{each.load:.1f}" for each in measured],
        "journal at most, MB": [f"{each.journal_most / 1e6:.1f}" for each in measured],
    }
    for name, cells in lines.items():
        table.add_row(name, *cells)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.purge", description=__doc__)
    parser.add_argument("--store", choices=[*STORES, "all"], default="all")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true", help="Print JSON only.")
    given = parser.parse_args()
    told = Console(stderr=True)
    kinds = list(STORES) if given.store == "all" else [given.store]
    measured = [measure(kind, given.rows, told) for kind in kinds]
    if given.json:
        print(json.dumps([asdict(each) for each in measured], indent=2))
    else:
        show(measured, Console(width=120))


if __name__ == "__main__":
    main()
