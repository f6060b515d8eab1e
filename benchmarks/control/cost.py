"""What the control API costs calls, while Prometheus scrapes every second and a page looks every two.

    python -m benchmarks.control cost [--rounds 6] [--seconds 4] [--stored 20000] [--json]

Two riglms stand side by side, one with the control API and one without, and are visited in turn. Throughput is that of
16 clients that never rest; lag is what one client that asks 250 times a second waits longer than usual. Exit code 1 if
the throughput falls by more than 5 %, or 999 of 1,000 requests wait more than 10 ms longer. On shared cores all that
looks takes its processor time from somebody as well: where others work, believe the processor time.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.control.served import Riglm, opened, served
from benchmarks.load.flood import Flood
from benchmarks.load.http_session import HttpSession
from benchmarks.load.message import Answer
from benchmarks.load.resources import processor_seconds

MOST_COST: Final = 0.05
MOST_LAG_MS: Final = 10.0
_CLIENTS: Final = 16
_PACE_SECONDS: Final = 0.004
_CALL: Final = {"name": "bench_echo", "arguments": {"text": "it"}}


def main(words: Sequence[str]) -> int:
    """Measure, and print a table."""
    chosen = _options(words)
    with tempfile.TemporaryDirectory(prefix="riglm-bench-") as name, contextlib.ExitStack() as stack:
        place, now = Path(name), time.time()
        riglms = {
            kind: stack.enter_context(served(place / kind, control=kind == "on", stored=chosen.stored, now=now))
            for kind in ("off", "on")
        }
        rounds: dict[str, list[dict[str, float]]] = {kind: [] for kind in riglms}
        for number in range(chosen.rounds + 1):
            for kind in sorted(riglms, reverse=number % 2 == 0):
                with _looked_at(riglms[kind]):
                    measured = _round(riglms[kind], chosen.seconds)
                if number:  # the first one warms up
                    rounds[kind].append(measured)
    found = _summary(rounds)
    if chosen.json:
        print(json.dumps(found | {"rounds": rounds}, indent=1))
    else:
        _show(found, rounds)
    return 0 if found["cost"] <= MOST_COST and found["lag_ms"] <= MOST_LAG_MS else 1


def _options(words: Sequence[str]) -> argparse.Namespace:
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.control cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument("--seconds", type=float, default=4.0, help="of each round, for throughput and for lag")
    options.add_argument("--stored", type=int, default=20_000, help="invocations in the store before")
    options.add_argument("--json", action="store_true", help="print JSON only")
    return options.parse_args(words)


@contextlib.contextmanager
def _looked_at(riglm: Riglm) -> Iterator[None]:
    """Somebody looks meanwhile, where there is anything to see."""
    if riglm.control is None:
        yield
        return
    command = [sys.executable, "-m", "benchmarks.control.looking", str(riglm.control)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as looking:
        assert looking.stdin is not None
        assert looking.stdout is not None
        looking.stdout.readline()
        yield
        looking.stdin.close()
        if looking.wait(30):
            raise SystemExit("whoever looked got no answer")


def _round(riglm: Riglm, seconds: float) -> dict[str, float]:
    clients = opened(riglm.port, _CLIENTS)
    before = processor_seconds(riglm.pid)
    flood = Flood(clients, 10**9, seconds, lambda _: _CALL, _is_right).run()
    used = processor_seconds(riglm.pid) - before
    for each in clients[1:]:
        each.close()
    waits = _waits(clients[0], seconds)
    clients[0].close()
    usual, slow = statistics.median(waits), sorted(waits)
    return {
        "calls_per_second": len(flood.latencies) / flood.seconds,
        "processor_us_per_call": used / len(flood.latencies) * 1e6,
        "wrong": float(flood.wrong),
        "median_ms": usual * 1e3,
        "lag_p99_ms": (slow[int(len(slow) * 0.99)] - usual) * 1e3,
        "lag_p999_ms": (slow[int(len(slow) * 0.999)] - usual) * 1e3,
        "lag_most_ms": (slow[-1] - usual) * 1e3,
    }


def _waits(client: HttpSession, seconds: float) -> list[float]:
    """How long each of the requests of one client took that keeps a pace."""
    waits = []
    start = due = time.perf_counter()
    while due < start + seconds:
        time.sleep(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        client.ask("tools/call", _CALL)
        waits.append(time.perf_counter() - began)
        due = max(due + _PACE_SECONDS, time.perf_counter())
    return waits


def _is_right(_: HttpSession, answer: Answer) -> bool:
    return not answer.content().get("isError")


def _summary(rounds: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    def usual(kind: str, name: str) -> float:
        return statistics.median(each[name] for each in rounds[kind])

    def ratio(name: str) -> float:
        return statistics.median(on[name] / off[name] for on, off in zip(rounds["on"], rounds["off"], strict=True))

    return {
        "cost": 1 - ratio("calls_per_second"),
        "processor": ratio("processor_us_per_call") - 1,
        "lag_ms": usual("on", "lag_p999_ms") - usual("off", "lag_p999_ms"),
        "wrong": sum(each["wrong"] for kind in rounds.values() for each in kind),
        **{kind: {name: usual(kind, name) for name in rounds[kind][0]} for kind in rounds},
    }


def _show(found: dict[str, Any], rounds: dict[str, list[dict[str, float]]]) -> None:
    names = list(rounds["on"][0])
    table = Table("control API", *names, title="medians of all rounds", title_justify="left")
    for kind in rounds:
        table.add_row(kind, *(f"{found[kind][name]:.2f}" for name in names))
    console = Console(width=140)
    console.print(table)
    console.print(f"throughput: {found['cost']:+.1%} less (goal: at most {MOST_COST:.0%})")
    console.print(f"processor time of a call: {found['processor']:+.1%}, all that is told included")
    console.print(f"added lag, 999 of 1,000: {found['lag_ms']:+.1f} ms (goal: at most {MOST_LAG_MS:g})")
