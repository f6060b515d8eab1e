"""How long the knowledge store takes to find the nearest of very many pieces, exactly, and what it holds in memory.

The vectors lie in clusters, as those of texts do. Each answer is compared with that of comparing with all.
"""

import argparse
import contextlib
import resource
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table as Shown
from threadpoolctl import threadpool_limits

from benchmarks.store_filling import STORES
from riglm.adapters.analytics.knowledge.sql import SqlKnowledge
from riglm.domain.identifier import uuid7
from riglm.domain.knowledge.pieces import Embedding, Thought
from riglm.domain.knowledge.provenance import Origin, Table
from riglm.domain.prediction import Vector
from riglm.ports.knowledge import Scope

DIMENSIONS = 384
CLUSTERS = 500
AT_ONCE = 2_000
GOAL_MS = 50.0
CANDIDATES = 150
_LIKENESS = 0.8
_TIE = 1e-5


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


def ask(store: SqlKnowledge, rows: Vector, questions: int, chance: np.random.Generator) -> tuple[list[float], int]:
    """Milliseconds of each question, the first one being the one that fills the index; how many were answered wrong."""
    times, wrong = [], 0
    for _ in range(questions + 1):
        asked = rows[chance.integers(len(rows))] + 0.02 * chance.normal(size=DIMENSIONS).astype(np.float32)
        asked = (asked / np.linalg.norm(asked)).astype(np.float32)
        started = time.perf_counter()
        found = store.nearest(Table.THOUGHTS, Embedding(model="bench", vector=asked), Scope(owner=""), CANDIDATES)
        times.append((time.perf_counter() - started) * 1000)
        best = np.sort(rows @ asked)[::-1][:CANDIDATES]
        wrong += not np.allclose([each.score for each in found], best, atol=_TIE)
    return times, wrong


def resident_mb() -> float:
    """What this process holds in memory."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pieces", type=int, default=100_000)
    options.add_argument("--questions", type=int, default=200)
    options.add_argument("--store", nargs="+", choices=tuple(STORES), default=tuple(STORES))
    given = options.parse_args()
    rows = vectors(given.pieces, np.random.default_rng(0))
    table = Shown(title=f"{given.pieces:,} pieces of {DIMENSIONS} numbers, {CANDIDATES} candidates")
    for column in ("store", "first ms", "p50 ms", "p99 ms", "wrong", "memory MB"):
        table.add_column(column, justify="right")
    late = False
    with threadpool_limits(1):
        for name in given.store:
            with STORES[name]() as url:
                with SqlKnowledge(url) as store:
                    fill(store, rows)
                before = resident_mb()
                with SqlKnowledge(url) as store:
                    times, wrong = ask(store, rows, given.questions, np.random.default_rng(1))
                p99 = statistics.quantiles(times[1:], n=100)[98]
                late |= wrong > 0 or p99 > GOAL_MS
                cells = (times[0], statistics.median(times[1:]), p99)
                table.add_row(name, *(f"{cell:.1f}" for cell in cells), str(wrong), f"{resident_mb() - before:+.0f}")
    Console().print(table)
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
