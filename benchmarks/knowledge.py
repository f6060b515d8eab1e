"""How long the knowledge store takes to find the nearest of very many pieces: `python -m benchmarks.knowledge`.

The vectors lie in clusters, as those of texts do. Each answer is compared with that of comparing with all. What a
question costs a process that was started for it, and what the store holds in memory, another process measures of
itself.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table as Shown
from threadpoolctl import threadpool_limits

from benchmarks.store_filling import STORES
from riglm.adapters.analytics.knowledge import SqlKnowledge
from riglm.domain.knowledge import Embedding, Origin, SnippetCandidate, Table, Thought
from riglm.domain.prediction import Vector
from riglm.domain.session import uuid7
from riglm.ports.knowledge import Scope

DIMENSIONS = 384
CLUSTERS = 500
AT_ONCE = 2_000
GOAL_MS = 50.0
CANDIDATES = 150
_LIKENESS = 0.8
_TIE = 1e-5
_URL = "RIGLM_BENCHMARK_STORE"


def vectors(count: int, chance: np.random.Generator) -> Vector:
    """Rows of unit length around common centres."""
    centres = chance.normal(size=(CLUSTERS, DIMENSIONS)).astype(np.float32)
    rows = centres[chance.integers(0, CLUSTERS, count)]
    rows = rows + _LIKENESS * chance.normal(size=rows.shape).astype(np.float32)
    found: Vector = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


def fill(store: SqlKnowledge, rows: Vector) -> None:
    """Add a thought for each row."""
    for start in range(0, len(rows), AT_ONCE):
        thoughts = [
            Thought(
                id=uuid7(),
                owner="",
                text=f"What was thought as number {number}.",
                origin=Origin.HUMAN,
                created_at=float(number),
                tags=("every seventh",) if number % 7 == 0 else (),
                embedding=Embedding(model="bench", vector=rows[number]),
            )
            for number in range(start, min(start + AT_ONCE, len(rows)))
        ]
        store.add_thoughts(thoughts)


def questions_near(rows: Vector, count: int, chance: np.random.Generator) -> Iterator[Vector]:
    """Vectors of unit length, each near one of the rows."""
    for _ in range(count):
        asked = rows[chance.integers(len(rows))] + 0.02 * chance.normal(size=DIMENSIONS).astype(np.float32)
        yield (asked / np.linalg.norm(asked)).astype(np.float32)


class Asked(NamedTuple):
    """Milliseconds of each question after the first, which fills the index, and of the processor; how many wrong."""

    took: list[float]
    worked: list[float]
    wrong: int


def ask(store: SqlKnowledge, rows: Vector, questions: int, chance: np.random.Generator) -> Asked:
    """Ask, and compare with comparing with all."""
    took, worked, wrong = [], [], 0
    for asked in questions_near(rows, questions + 1, chance):
        started, began = time.perf_counter(), time.process_time()
        found = nearest(store, asked)
        worked.append((time.process_time() - began) * 1000)
        took.append((time.perf_counter() - started) * 1000)
        best = np.sort(rows @ asked)[::-1][:CANDIDATES]
        wrong += not np.allclose([each.score for each in found], best, atol=_TIE)
    return Asked(took[1:], worked[1:], wrong)


def nearest(store: SqlKnowledge, asked: Vector) -> Sequence[SnippetCandidate]:
    """What one table is asked for by a question."""
    return store.nearest(Table.THOUGHTS, Embedding(model="bench", vector=asked), Scope(owner=""), CANDIDATES)


class Fresh(NamedTuple):
    """What a process measures of itself that was started for one question."""

    opened_ms: float
    """From its start until the store is open: Python, libraries, the schema's version."""

    first_ms: float
    """The first question, with the filling of the index."""

    held_mb: float
    """What the process holds more after twenty questions than with an open store."""


def measured_fresh() -> Fresh:
    """Measure this process, which was just started; the store's URL is in its environment."""
    me = psutil.Process()
    with threadpool_limits(1), SqlKnowledge(os.environ[_URL]) as store:
        opened, before = time.time(), me.memory_info().rss
        asked = np.full(DIMENSIONS, DIMENSIONS**-0.5, np.float32)
        nearest(store, asked)
        first = time.time()
        for _ in range(20):
            nearest(store, asked)
        held = me.memory_info().rss - before
    return Fresh((opened - me.create_time()) * 1000, (first - opened) * 1000, held / 1e6)


def fresh(url: str) -> Fresh:
    """What another process measures."""
    command = [sys.executable, "-m", "benchmarks.knowledge", "--fresh"]
    done = subprocess.run(
        command, env={**os.environ, _URL: url}, stdout=subprocess.PIPE, text=True, check=True, timeout=600
    )
    return Fresh(*json.loads(done.stdout))


def main() -> int:
    """Print the table; the exit code is 1 when an answer is wrong, or too many are slower than they may be."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pieces", type=int, default=100_000)
    options.add_argument("--questions", type=int, default=200)
    options.add_argument("--store", nargs="+", choices=tuple(STORES), default=tuple(STORES))
    options.add_argument("--fresh", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.fresh:
        sys.stdout.write(json.dumps(measured_fresh()))
        return 0
    rows = vectors(given.pieces, np.random.default_rng(0))
    table = Shown(title=f"{given.pieces:,} pieces of {DIMENSIONS} numbers, {CANDIDATES} candidates")
    for column in ("store", "p50 ms", "p99 ms", "cpu ms", "wrong", "open ms", "first ms", "held MB"):
        table.add_column(column, justify="right")
    late = False
    with threadpool_limits(1):
        for name in given.store:
            with STORES[name]() as url:
                with SqlKnowledge(url) as store:
                    fill(store, rows)
                    asked = ask(store, rows, given.questions, np.random.default_rng(1))
                p99 = statistics.quantiles(asked.took, n=100)[98]
                late |= asked.wrong > 0 or p99 > GOAL_MS
                quick = (statistics.median(asked.took), p99, statistics.median(asked.worked))
                table.add_row(
                    name, *(f"{each:.1f}" for each in quick), str(asked.wrong), *(f"{each:.0f}" for each in fresh(url))
                )
    Console().print(table)
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
