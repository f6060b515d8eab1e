"""Two riglm processes as one, and one of them killed in mid-run.

    python -m benchmarks.many_processes [--only killed away] [--sessions 1000] [--calls 10] [--json]

`killed`: half of the clients use the handshake era, half the modern one. A handshake session stays with its process;
modern requests alternate between the processes. Halfway, SIGKILL ends one process, and the other continues. `away`: a
modern client's calls while Redis hangs, is killed and comes back, and the cost of a call with and without Redis.
Exit code 1 if an answer is wrong, a session cannot go on, or a record is missing that was due before the kill.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.many_processes import away
from benchmarks.many_processes.away import Away
from benchmarks.many_processes.processes import Riglms, database, riglms
from benchmarks.many_processes.session import Ports, Session

_WINDOW_SECONDS = 0.25
"""What was answered so shortly before a kill need not be recorded."""

_AT_ONCE = 64
_PARTS = ("killed", "away")


@dataclass(frozen=True)
class Result:
    """What was seen. Times are in milliseconds."""

    sessions: int
    calls: int
    right_share: float
    sessions_that_went_on: int
    sessions_moved: int
    sessions_reopened: int
    requests_cut_by_the_kill: int
    records_due: int
    records_lost: int
    records_twice: int
    unacknowledged: int
    recorded_sessions: int
    p50_ms: float
    p99_ms: float
    calls_per_second: float
    wrong: tuple[str, ...]


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", nargs="+", choices=_PARTS, default=_PARTS)
    options.add_argument("--sessions", type=int, default=1_000)
    options.add_argument("--calls", type=int, default=10, help="of each session")
    options.add_argument("--filter", action="store_true", help="with filtering by prediction, not only recording")
    options.add_argument("--json", action="store_true", help="print JSON only")
    return options.parse_args()


async def drive(sessions: list[Session], calls: int, actors: Riglms) -> tuple[float, float]:
    """Let all sessions ask, and kill the first process in the middle; when that was, and how long it all took."""
    gate = asyncio.Semaphore(_AT_ONCE)
    done = asyncio.Event()
    half = len(sessions) * calls // 2
    answered = 0

    async def run(session: Session) -> None:
        nonlocal answered
        async with gate:
            await session.open()
        for number in range(calls):
            async with gate:
                await session.call(number)
            answered += 1
            if answered == half:
                done.set()
            await asyncio.sleep(0)

    async def kill() -> float:
        await done.wait()
        actors.kill(0)
        return time.monotonic()

    began = time.monotonic()
    killing = asyncio.create_task(kill())
    await asyncio.gather(*(run(session) for session in sessions))
    return await killing, time.monotonic() - began


def recorded(url: str) -> list[str]:
    """The texts of all recorded calls."""
    with psycopg.connect(url) as store:
        rows = store.execute("SELECT arguments FROM invocation WHERE tool = 'nonce'").fetchall()
    return [json.loads(arguments)["nonce"] for (arguments,) in rows]


def recorded_sessions(url: str) -> int:
    """How many sessions have calls."""
    with psycopg.connect(url) as store:
        row = store.execute("SELECT count(DISTINCT session_id) FROM invocation").fetchone()
    return int(row[0]) if row else 0


def measure(chosen: argparse.Namespace, directory: Path) -> Result:
    """One run."""
    settings = {"RIGLM_FILTERING__ENABLED": "true" if chosen.filter else "false"}
    with database() as url:
        with riglms(2, url, directory, settings) as actors:
            killed_port = next(iter(actors.ports.values()))
            ports = Ports(actors.ports)
            sessions = [
                Session(f"s{number}", "modern" if number % 2 else "handshake", ports, number // 2)
                for number in range(chosen.sessions)
            ]
            killed_at, took = asyncio.run(drive(sessions, chosen.calls, actors))
            actors.stop()
        found, kept_sessions = recorded(url), recorded_sessions(url)
    answered = [one for session in sessions for one in session.tally.answered]
    excused = {nonce for nonce, at, port in answered if port == killed_port and at > killed_at - _WINDOW_SECONDS}
    due = {nonce for nonce, _, _ in answered} - excused
    wrong = tuple(words for session in sessions for words in session.tally.wrong)
    seconds = sorted(one for session in sessions for one in session.tally.seconds)
    expected = chosen.sessions * chosen.calls
    return Result(
        sessions=chosen.sessions,
        calls=expected,
        right_share=(expected - len(wrong)) / expected,
        sessions_that_went_on=sum(len(session.tally.answered) == chosen.calls for session in sessions),
        sessions_moved=sum(session.tally.moved for session in sessions),
        sessions_reopened=sum(session.tally.reopened for session in sessions),
        requests_cut_by_the_kill=sum(session.tally.cut for session in sessions),
        records_due=len(due),
        records_lost=len(due - set(found)),
        records_twice=len(found) - len(set(found)),
        unacknowledged=len(excused - set(found)),
        recorded_sessions=kept_sessions,
        p50_ms=statistics.median(seconds) * 1000,
        p99_ms=seconds[len(seconds) * 99 // 100] * 1000,
        calls_per_second=len(answered) / took,
        wrong=wrong[:10],
    )


def show(result: Result) -> None:
    table = Table(title="two processes, one killed in mid-run")
    table.add_column("")
    table.add_column("seen", justify="right")
    for name, value in asdict(result).items():
        table.add_row(name.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else str(value))
    Console().print(table)


def show_away(found: list[Away]) -> None:
    table = Table(title="one client while Redis is in trouble (ms)")
    for name in ("Redis", "calls", "failed", "p50", "p99", "slowest", "second"):
        table.add_column(name, justify="left" if name == "Redis" else "right")
    for one in found:
        times = (one.p50_ms, one.p99_ms, one.first_ms, one.second_ms)
        table.add_row(one.what, str(one.calls), str(one.failed), *(f"{value:.1f}" for value in times))
    Console().print(table)


def main() -> int:
    chosen = arguments()
    result, found = None, []
    with tempfile.TemporaryDirectory(prefix="riglm-many-") as place:
        if "killed" in chosen.only:
            result = measure(chosen, Path(place))
        if "away" in chosen.only:
            found = list(away.measure(Path(place)))
    if chosen.json:
        print(json.dumps({"killed": result and asdict(result), "away": [asdict(one) for one in found]}))
    else:
        if result is not None:
            show(result)
        if found:
            show_away(found)
    is_good = result is None or (
        result.right_share == 1.0 and result.records_lost == 0 and result.sessions_that_went_on == result.sessions
    )
    return 0 if is_good and not any(one.failed for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
