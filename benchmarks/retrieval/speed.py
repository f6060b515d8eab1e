"""What building and asking cost, at 500 and at 10,000 tools, with a full dynamic index."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice

import numpy as np

from benchmarks.evaluation.retrieval import EmbeddedDataset
from riglm.domain.prediction import Vector
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.retrieval.retriever import Retriever

_PAIRS = 5_000
_QUESTIONS = 300


def print_speed(sets: Sequence[EmbeddedDataset]) -> None:
    """Milliseconds of wall time and of processor time; a busy machine shows in the first."""
    print("\n| tools | pairs | build s | learn ms | relevance p50 ms | p99 ms | p50 cpu ms | p99 cpu ms |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for data in sets:
        for count in (500, 10_000):
            if data.dataset.name in {"toolathlon", "sealtools"}:
                _print_row(data, count)


def _turned(vector: Vector | None, places: int) -> Vector | None:
    return None if vector is None else np.roll(vector, places, axis=-1)


def _print_row(data: EmbeddedDataset, count: int) -> None:
    tools = [
        replace(tool, name=f"{tool.name} {at}") for at, tool in enumerate(islice(cycle(data.dataset.tools), count))
    ]
    vectors = {tool.name: data.vectors[tool.name.rsplit(" ", 1)[0]] for tool in tools}
    pairs = LearnedPairs()
    started = time.perf_counter()
    retriever = Retriever(tools, pairs=pairs).with_vectors(data.model, vectors)
    built = time.perf_counter()
    for at, context in enumerate(islice(cycle(data.contexts), _PAIRS)):
        tool = tools[at * 7 % count]
        other = replace(context, text=f"{context.text} {at}", vector=_turned(context.vector, at // len(data.contexts)))
        pairs.learn(other, tool.name, 1.0, scope="", at=float(at), description_hash=tool.fingerprint)
    learned = time.perf_counter()
    names = tuple(tool.name for tool in tools)
    wall, cpu = [], []
    for context in islice(cycle(data.contexts), _QUESTIONS):
        first, used = time.perf_counter(), time.process_time()
        retriever.relevance(context, names)
        wall.append(1e3 * (time.perf_counter() - first))
        cpu.append(1e3 * (time.process_time() - used))
    figures = " | ".join(f"{np.quantile(taken, share):.1f}" for taken in (wall, cpu) for share in (0.5, 0.99))
    learning = 1e3 * (learned - built) / _PAIRS
    print(
        f"| {count} ({data.dataset.name}) | {len(pairs)} | {built - started:.2f} | {learning:.2f} | {figures} |",
        flush=True,
    )
