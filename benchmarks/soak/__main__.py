"""Use riglm for hours, with crashes and outages, and fail on growth: `python -m benchmarks.soak --hours 1`.

Clients call and search once in each of 4,000 contexts, then call, list, search, set contexts and reconnect. Every
minute a server is killed, and every five minutes another program holds the store for ten seconds. Operations may fail
then; a wrong answer is a failure at any time.
"""

import argparse
import contextlib
import json
import os
import random
import sqlite3
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import psutil

from benchmarks.cache import CHECKOUT
from benchmarks.load import resources
from benchmarks.soak.clients import SERVERS, TEXTS, Client, Measured
from benchmarks.soak.report import Minute, growth, slope, write
from benchmarks.subject import RIGLM, Served

_TOOLS: Final = "60"
_OUTAGE_MINUTES: Final = 5
_OUTAGE_SECONDS: Final = 10.0
_MINUTE: Final = 60.0


def _configuration(folder: Path) -> Path:
    command = [sys.executable, "-m", resources.UPSTREAM, "stdio", _TOOLS]
    entry = {"command": command[0], "args": command[1:], "cwd": str(CHECKOUT)}
    servers = {name: {**entry, "sharing": sharing} for name, sharing in zip(SERVERS, ("shared", "auto"), strict=True)}
    file = folder / "riglm.yaml"
    file.write_text(json.dumps({"mcpServers": servers, "filtering": {"mode": "enforce"}}), "utf-8")
    return file


def _crash_a_server(pid: int, rng: random.Random) -> None:
    """Kill one of the servers behind riglm."""
    children = []
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if resources.UPSTREAM in process.cmdline():
                children.append(process)
    if children:
        with contextlib.suppress(psutil.Error):
            rng.choice(children).kill()


def _hold_the_store(file: Path, stopped: threading.Event) -> None:
    """Hold the write lock of the store, as a backup or an editor may."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(file, timeout=5)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        stopped.wait(_OUTAGE_SECONDS)
        connection.rollback()


def _minute(number: int, pid: int, measured: Measured) -> Minute:
    seconds, counts = measured.take()

    def quantile(share: float) -> float:
        return 1000 * seconds[int(share * (len(seconds) - 1))] if seconds else 0.0

    return Minute(
        minute=number,
        memory=psutil.Process(pid).memory_info().rss / 2**20,
        files=resources.open_files(pid),
        threads=psutil.Process(pid).num_threads(),
        p50=quantile(0.5),
        p99=quantile(0.99),
        operations=counts.total() - counts["failed"],
        failed=counts["failed"],
    )


def _soak(folder: Path, minutes: int, rate: float, clients: int) -> tuple[list[Minute], list[str]]:
    measured, stopped, rng = Measured(), threading.Event(), random.Random(1)
    served = Served(RIGLM, ("--config", str(_configuration(folder))), folder / "data", arguments=())
    found = []
    with served.process:
        pid = served.process.pid
        working = [
            Client(served.port, number, rate / clients, measured, stopped, TEXTS[number::clients])
            for number in range(clients)
        ]
        for client in working:
            client.start()
        began = time.monotonic()
        for number in range(1, minutes + 1):
            _crash_a_server(pid, rng)
            if number % _OUTAGE_MINUTES == 0:
                _hold_the_store(folder / "data" / "riglm.db", stopped)
            time.sleep(max(0.0, began + number * _MINUTE - time.monotonic()))
            found.append(_minute(number, pid, measured))
            sys.stderr.write(f"{found[-1]}\n")
        stopped.set()
        for client in working:
            client.join(_MINUTE)
    return found, measured.wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=150.0, help="operations a second")
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--report", type=Path, default=Path(os.environ.get("RIGLM_CACHE", ".cache")) / "soak")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        minutes, wrong = _soak(Path(folder), max(1, round(60 * given.hours)), given.rate, given.clients)
    operations, failed = (sum(getattr(each, name) for each in minutes) for name in ("operations", "failed"))
    verdict = [f"a wrong answer: {words}" for words in wrong[:10]] + growth(minutes)
    verdict += ["no operation succeeded in a minute"] if any(not each.operations for each in minutes) else []
    page = write(given.report, minutes, verdict)
    print(f"{operations:,} operations, {failed:,} failed at crashes and outages, {len(wrong)} wrong answers")
    print(f"memory grew by {slope(minutes[10:]):.2f} MiB an hour after ten minutes; the report is {page}")
    for words in verdict:
        print(words)
    sys.exit(bool(verdict))


if __name__ == "__main__":
    main()
