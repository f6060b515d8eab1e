"""What the control API costs calls: nobody looks, Prometheus scrapes every second, and the page asks every two as well.

    python -m benchmarks.control cost [--sets 2] [--turns 60] [--slice 0.25] [--stored 20000] [--json]

Riglms stand side by side in sets of four: one without the control API, one that nobody looks at, one that is scraped,
and one that is scraped while the page is open. They take short turns, since a shared machine is faster now and slower
then: what is compared was measured within seconds. In each turn 16 clients call as fast as they can, which gives the
throughput, then one client calls 250 times a second, which gives the lag. Whoever looks keeps to the time that belongs
to his riglm. Exit code 1 if the throughput falls by more than 5 %, or 999 of 1,000 calls wait more than 10 ms longer.
"""

import argparse
import contextlib
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import track
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
_WITHOUT: Final = "without"
_SCRAPE_SECONDS: Final = 1.0
_PAGE_SECONDS: Final = 2.0
_LOOKS: Final[dict[str, dict[str, float]]] = {
    _WITHOUT: {},
    "nobody looks": {},
    "scraped": {"scrape": _SCRAPE_SECONDS},
    "scraped, page open": {"scrape": _SCRAPE_SECONDS, "page": _PAGE_SECONDS},
}
_BLOCK_TURNS: Final = 10
_SEED: Final = 20261101


@dataclass(slots=True)
class _Block:
    """What was measured of one riglm in some turns that follow each other."""

    calls: int = 0
    seconds: float = 0.0
    processor: float = 0.0
    wrong: int = 0
    waits: list[float] = field(default_factory=list)


class _Subject:
    """One riglm, its clients, and whoever looks at it."""

    def __init__(
        self, riglm: Riglm, looker: "subprocess.Popen[bytes] | None", looks: dict[str, float], chance: random.Random
    ) -> None:
        self._riglm = riglm
        self._clients = opened(riglm.port, _CLIENTS)
        self._looker = looker
        self._looks = looks
        self._chance = chance
        self._due = dict.fromkeys(looks, 0.0)
        self._lived = 0.0

    def turn(self, seconds: float, block: _Block) -> None:
        """Flood it, then ask it at a pace, so many seconds each."""
        self._look()
        before = processor_seconds(self._riglm.pid)
        flood = Flood(self._clients, 10**9, seconds, lambda _: _CALL, _is_right).run()
        block.processor += processor_seconds(self._riglm.pid) - before
        block.calls += len(flood.latencies)
        block.seconds += flood.seconds
        block.wrong += flood.wrong
        self._lived += flood.seconds
        self._look()
        block.waits += _waits(self._clients[0], seconds)
        self._lived += seconds

    def _look(self) -> None:
        for what, seconds in self._looks.items():
            if self._lived >= self._due[what]:
                self._due[what] += seconds * self._chance.uniform(0.5, 1.5)  # into both halves of turns alike
                assert self._looker is not None
                assert self._looker.stdin is not None
                self._looker.stdin.write(f"{what}\n".encode())
                self._looker.stdin.flush()


def main(words: Sequence[str]) -> int:
    """Measure, and print a table."""
    chosen = _options(words)
    chance = random.Random(_SEED)
    blocks: dict[str, list[_Block]] = {kind: [] for kind in _LOOKS}
    turns = chosen.sets * (chosen.turns + _BLOCK_TURNS)
    with tempfile.TemporaryDirectory(prefix="riglm-bench-") as name, contextlib.ExitStack() as stack:
        sets = [_started(stack, Path(name) / str(number), chosen.stored, chance) for number in range(chosen.sets)]
        for number in track(range(turns), "turns", console=Console(stderr=True)):
            if number % _BLOCK_TURNS == 0:
                for found in blocks.values():
                    found.append(_Block())
            subjects = sets[number // _BLOCK_TURNS % len(sets)]
            for kind in chance.sample(list(subjects), len(subjects)):
                subjects[kind].turn(chosen.slice, blocks[kind][-1])
    counted = {kind: found[chosen.sets :] for kind, found in blocks.items()}  # each set's first block warms it up
    summary = {kind: _summary(found, counted[_WITHOUT]) for kind, found in counted.items()}
    if chosen.json:
        print(json.dumps(summary, indent=1))
    else:
        _show(summary)
    return 0 if all(each["cost"] <= MOST_COST and each["lag_ms"] <= MOST_LAG_MS for each in summary.values()) else 1


def _options(words: Sequence[str]) -> argparse.Namespace:
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.control cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--sets", type=int, default=2, help="of riglms")
    options.add_argument("--turns", type=int, default=60, help=f"of each riglm, {2 * _BLOCK_TURNS} at least")
    options.add_argument("--slice", type=float, default=0.25, help="seconds of a turn, for throughput and for lag")
    options.add_argument("--stored", type=int, default=20_000, help="invocations in each store before")
    options.add_argument("--json", action="store_true", help="print JSON only")
    return options.parse_args(words)


def _started(stack: contextlib.ExitStack, place: Path, stored: int, chance: random.Random) -> dict[str, _Subject]:
    now = time.time()
    subjects = {}
    for number, (kind, looks) in enumerate(_LOOKS.items()):
        riglm = stack.enter_context(served(place / str(number), control=kind != _WITHOUT, stored=stored, now=now))
        looker = stack.enter_context(_looker(riglm)) if looks else None
        subjects[kind] = _Subject(riglm, looker, looks, chance)
    return subjects


@contextlib.contextmanager
def _looker(riglm: Riglm) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "benchmarks.control.looking", str(riglm.control)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as looking:
        assert looking.stdin is not None
        yield looking
        looking.stdin.close()
        if looking.wait(30):
            raise SystemExit("whoever looked got no answer")


def _waits(client: HttpSession, seconds: float) -> list[float]:
    """How long each of the calls of one client took that keeps a pace."""
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


def _summary(blocks: Sequence[_Block], without: Sequence[_Block]) -> dict[str, float]:
    pairs = list(zip(blocks, without, strict=True))
    speeds = [(on.calls / on.seconds) / (off.calls / off.seconds) for on, off in pairs]
    processor = [(on.processor / on.calls) / (off.processor / off.calls) for on, off in pairs]
    return {
        "calls_per_second": sum(each.calls for each in blocks) / sum(each.seconds for each in blocks),
        "processor_us_per_call": sum(each.processor for each in blocks) / sum(each.calls for each in blocks) * 1e6,
        "wrong": sum(each.wrong for each in blocks),
        "cost": 1 - statistics.mean(speeds),
        "cost_error": _error(speeds),
        "processor": statistics.mean(processor) - 1,
        "processor_error": _error(processor),
        "median_ms": _wait_ms(blocks, 0.5),
        "p999_ms": _wait_ms(blocks, 0.999),
        "lag_ms": _wait_ms(blocks, 0.999) - _wait_ms(without, 0.999),
    }


def _wait_ms(blocks: Sequence[_Block], share: float) -> float:
    waits = sorted(wait for each in blocks for wait in each.waits)
    return waits[int(len(waits) * share)] * 1e3


def _error(values: Sequence[float]) -> float:
    """The standard error of their mean."""
    return statistics.stdev(values) / math.sqrt(len(values))


def _show(summary: dict[str, dict[str, float]]) -> None:
    table = Table(
        "control API",
        "calls/s",
        "fewer",
        "processor us a call",
        "more",
        "median ms",
        "999 of 1,000 ms",
        "added lag ms",
        "wrong",
        title="of all turns; with standard errors",
        title_justify="left",
    )
    for kind, found in summary.items():
        table.add_row(
            kind,
            f"{found['calls_per_second']:.0f}",
            f"{found['cost']:.1%} ± {found['cost_error']:.1%}",
            f"{found['processor_us_per_call']:.0f}",
            f"{found['processor']:.1%} ± {found['processor_error']:.1%}",
            f"{found['median_ms']:.2f}",
            f"{found['p999_ms']:.1f}",
            f"{found['lag_ms']:+.1f}",
            f"{found['wrong']:.0f}",
        )
    console = Console(width=140)
    console.print(table)
    console.print(f"goals: at most {MOST_COST:.0%} fewer calls, at most {MOST_LAG_MS:g} ms of added lag")
