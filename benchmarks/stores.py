"""What the databases do for riglm: records stored a second, and the learned pairs that are nearest to a context."""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from rich.console import Console
from rich.table import Table
from tests.records import a_learned_pair, a_session, an_exposure, an_invocation
from tests.stores.postgres import PostgresServer

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.ports.analytics import Record

RECORDS = {1: 2_000, 100: 20_000, 500: 50_000}
"""How many records are stored in batches of which size."""

PAIRS = 20_000
DIMENSIONS = 384
CLUSTERS = 200
QUESTIONS = 21
NEAREST = """
SELECT pair_id FROM learned_vector JOIN learned_pair AS pair ON pair.id = pair_id
WHERE model = 'minilm' AND dimensions = 384 ORDER BY embedding::vector(384) <=> %s::vector(384) LIMIT 10
"""
NEAREST_BY_INDEX = """
SELECT pair_id FROM learned_vector WHERE vector_dims(embedding) = 384
ORDER BY embedding::vector(384) <=> %s::vector(384) LIMIT 10
"""
INDEX = """
CREATE INDEX ON learned_vector USING hnsw ((embedding::vector(384)) vector_cosine_ops)
WHERE vector_dims(embedding) = 384
"""


def some_records(count: int) -> list[Record]:
    session = a_session(tools_available=tuple(f"tool_{number}" for number in range(50)))
    calls: list[Record] = [
        an_invocation(session, f"tool_{number % 50}", arguments_hash="a" * 32) for number in range(count)
    ]
    calls[::10] = [an_exposure(session, "tool_1", "tool_2", hidden=("tool_3",)) for _ in calls[::10]]
    return [session, *calls[1:]]


def rate(url: str, batch: int, *, durable: bool = False) -> float:
    """Records a second through the adapter, nine calls to each exposure."""
    records = some_records(RECORDS[batch])
    with SqlAnalytics(url, durable=durable) as store:
        start = time.perf_counter()
        for at in range(0, len(records), batch):
            store.record_many(records[at : at + batch])
        return len(records) / (time.perf_counter() - start)


def show_rates(server: PostgresServer, directory: Path) -> None:
    table = Table(title="Records stored a second, by the size of a batch", title_justify="left")
    table.add_column("store")
    for batch in RECORDS:
        table.add_column(f"{batch}", justify="right")
    stores: dict[str, Callable[[int], float]] = {
        "SQLite, WAL, NORMAL": lambda batch: rate(f"sqlite:///{directory / 'normal.db'}", batch),
        "SQLite, WAL, FULL": lambda batch: rate(f"sqlite:///{directory / 'full.db'}", batch, durable=True),
        "PostgreSQL, fsync": lambda batch: rate(server.url, batch),
    }
    for name, measure in stores.items():
        table.add_row(name, *(f"{measure(batch):,.0f}" for batch in RECORDS))
    Console(width=120).print(table)


def median_ms(ask: Callable[[Any], Any], questions: Any) -> float:
    costs = []
    for question in questions:
        start = time.perf_counter()
        ask(question)
        costs.append((time.perf_counter() - start) * 1000)
    return statistics.median(costs)


def show_nearest(server: PostgresServer) -> None:
    """Contexts come in clusters, as people repeat themselves."""
    random = np.random.default_rng(7)
    centres = random.standard_normal((CLUSTERS, DIMENSIONS))
    vectors = centres[random.integers(CLUSTERS, size=PAIRS)] + 0.5 * random.standard_normal((PAIRS, DIMENSIONS))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    pairs = [a_learned_pair(vector=vector) for vector in vectors]
    questions = vectors[:QUESTIONS] + np.float32(0.01)
    table = Table(title=f"{PAIRS:,} learned pairs of {DIMENSIONS} dimensions", title_justify="left")
    for column in ("what", "ms"):
        table.add_column(column, justify="left" if column == "what" else "right")
    with SqlAnalytics(server.url) as store, psycopg.connect(server.url, autocommit=True) as connection:
        batches = [pairs[at : at + 500] for at in range(0, PAIRS, 500)]
        table.add_row("storing 500, with pgvector", f"{median_ms(store.record_many, batches):.0f}")
        table.add_row("reading 5,000", f"{median_ms(lambda _: store.list_learned_pairs('minilm', 5000), range(5)):.0f}")
        table.add_row("the nearest 10: numpy, in memory", f"{median_ms(lambda q: nearest(vectors, q), questions):.1f}")

        def ask(query: str) -> Callable[[Any], set[Any]]:
            return lambda question: {id_ for (id_,) in connection.execute(query, [str(question.tolist())])}

        table.add_row("the nearest 10: pgvector, exact", f"{median_ms(ask(NEAREST), questions):.1f}")
        start = time.perf_counter()
        connection.execute(INDEX)
        table.add_row("making an HNSW index", f"{(time.perf_counter() - start) * 1000:,.0f}")
        by_index = ask(NEAREST_BY_INDEX)
        table.add_row("the nearest 10: pgvector, HNSW", f"{median_ms(by_index, questions):.1f}")
        right = [len({pairs[at].id for at in nearest(vectors, each)} & by_index(each)) for each in questions]
        more = pairs[:500]
        for pair in more:
            pair.vector[0] += 1
        table.add_row("storing 500 again, with the index", f"{median_ms(store.record_many, [more]):.0f}")
    Console(width=120).print(table)
    print(f"of the nearest 10 the HNSW index found {statistics.mean(right):.1f}")


def nearest(vectors: Any, question: Any) -> Any:
    return np.argsort(-(vectors @ question))[:10]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, PostgresServer(fsync="on") as server:
        show_rates(server, Path(directory))
        show_nearest(server)
    print(f"{os.cpu_count()} cores, the server on the same machine")


if __name__ == "__main__":
    main()
