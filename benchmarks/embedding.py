"""What embedding costs: time to the first vector, texts a second, memory, and how late the event loop is meanwhile."""

import asyncio
import random
import statistics
import tempfile
import time
from typing import Any

import numpy as np
import psutil
import uvloop
from rich.console import Console
from rich.table import Table

from riglm.adapters.embedding.fastembed import BUNDLED_MODEL
from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.adapters.embedding.model_client import FastembedEmbedder
from riglm.domain.schemas.section import EmbedderSettings
from riglm.ports.embedder import EmbedderPort

TOOLS = 500
QUERIES = 100
PAUSE = 0.001
GOAL_MS = 10
MIB = 1024 * 1024
VERBS = ("Search", "List", "Create", "Update", "Delete", "Read", "Send", "Convert", "Merge", "Close")
WORDS = """the issues files pages messages branches users of a repository project workspace calendar with optional
filters by date author label or state and returns their identifiers titles owners sorted by time limited to a page size
"""


def descriptions() -> list[str]:
    """As many tools as a large set-up has, with about 55 tokens each."""
    chance = random.Random(0)
    return [
        f"{chance.choice(VERBS)} {' '.join(chance.choices(WORDS.split(), k=45))} {number}." for number in range(TOOLS)
    ]


async def lateness(until: asyncio.Future[Any]) -> list[float]:
    """By how many milliseconds each short sleep was too long."""
    late = []
    while not until.done():
        start = time.perf_counter()
        await asyncio.sleep(PAUSE)
        late.append((time.perf_counter() - start - PAUSE) * 1000)
    return late


async def lateness_during(embedder: EmbedderPort, texts: list[str]) -> tuple[list[float], float]:
    """The loop's lateness while a thread embeds the texts, and how many seconds that took."""
    start = time.perf_counter()
    embedding = asyncio.ensure_future(asyncio.to_thread(embedder.embed, texts))
    late = await lateness(embedding)
    await embedding
    return late, time.perf_counter() - start


async def lateness_alone(seconds: float) -> list[float]:
    return await lateness(asyncio.ensure_future(asyncio.sleep(seconds)))


def quantiles(values: list[float]) -> tuple[str, str, str]:
    """Median, 99th percentile and maximum."""
    return tuple(f"{value:.2f}" for value in (*np.percentile(values, (50, 99)), max(values)))  # type: ignore[return-value]


def resident(pid: int | None) -> float:
    return float(psutil.Process(pid).memory_info().rss) / MIB


def model_process(directory: str) -> int:
    """The id of the process that looks for models in a directory."""
    return next(each.pid for each in psutil.process_iter(["cmdline"]) if directory in (each.info["cmdline"] or ()))


def query_times(embedder: EmbedderPort) -> list[float]:
    """Milliseconds of one short text at a time."""
    times = []
    for number in range(QUERIES):
        start = time.perf_counter()
        embedder.embed([f"find what was said about release {number} of the search service"])
        times.append((time.perf_counter() - start) * 1000)
    return times


def main() -> None:
    """Print the tables."""
    texts = descriptions()
    before = resident(None)
    with tempfile.TemporaryDirectory() as directory:
        model = FastembedEmbedder(BUNDLED_MODEL, EmbedderSettings(directory=directory, shared=False))
        start = time.perf_counter()
        with model:
            loaded = time.perf_counter() - start
            model.embed(["first"])
            first = time.perf_counter() - start
            queries = query_times(model)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                alone = runner.run(lateness_alone(3))
                late, took = runner.run(lateness_during(model, texts))
                static, static_took = runner.run(lateness_during(HashingEmbedder(), texts))
            own, childs = resident(None) - before, resident(model_process(directory))
    facts = Table(title=f"{BUNDLED_MODEL}, in a process of its own")
    facts.add_column("what")
    facts.add_column("value", justify="right")
    for what, value in (
        ("model loaded after", f"{loaded * 1000:.0f} ms"),
        ("first vector after", f"{first * 1000:.0f} ms"),
        ("one short text, median", f"{statistics.median(queries):.1f} ms"),
        ("one short text, p99", f"{float(np.percentile(queries, 99)):.1f} ms"),
        (f"{TOOLS} descriptions", f"{took:.1f} s"),
        (f"{TOOLS} descriptions, hashed words", f"{static_took:.2f} s"),
        ("memory of riglm, more", f"{own:.0f} MiB"),
        ("memory of the process", f"{childs:.0f} MiB"),
    ):
        facts.add_row(what, value)
    loop = Table(title=f"how late the event loop is, in ms (goal: p99 <= {GOAL_MS})")
    for column in ("meanwhile", "p50", "p99", "max"):
        loop.add_column(column, justify="left" if column == "meanwhile" else "right")
    loop.add_row("nothing", *quantiles(alone))
    loop.add_row(f"{TOOLS} descriptions by the model", *quantiles(late))
    loop.add_row(f"{TOOLS} descriptions as hashed words", *quantiles(static))
    console = Console()
    console.print(facts)
    console.print(loop)


if __name__ == "__main__":
    main()
