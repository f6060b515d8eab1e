"""What pgvector takes for the questions of `benchmarks.knowledge`: `python -m benchmarks.knowledge_pgvector`.

Its exact scan, and its HNSW index with how much of the true answer that finds: what the index in riglm's memory is
measured against.
"""

import argparse
import statistics
import struct
import sys
import time
from collections.abc import Iterator

import numpy as np
import psycopg
from rich.console import Console
from rich.table import Table as Shown

from benchmarks.knowledge import CANDIDATES, DIMENSIONS, questions_near, vectors
from benchmarks.store_filling import postgresql_url
from riglm.domain.prediction import Vector

EF_SEARCH = (150, 400)
"""How far an HNSW search looks; it gives no more rows than that."""

_COPY_BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END = b"\xff\xff"
_ASK = f"SELECT id FROM piece ORDER BY embedding <#> %s::vector LIMIT {CANDIDATES}"


def fill(connection: psycopg.Connection, rows: Vector) -> None:
    """A table of vectors of unit length."""
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    connection.execute(f"CREATE TABLE piece (id int4 PRIMARY KEY, embedding vector({DIMENSIONS}) NOT NULL)")
    with connection.cursor() as cursor, cursor.copy("COPY piece FROM STDIN (FORMAT BINARY)") as copy:
        copy.write(_COPY_BEGIN)
        for number, row in enumerate(rows.astype(">f4")):
            body = struct.pack(">HH", DIMENSIONS, 0) + row.tobytes()
            copy.write(struct.pack(">hiii", 2, 4, number, len(body)) + body)
        copy.write(_COPY_END)
    connection.execute("ANALYZE piece")


def ask(connection: psycopg.Connection, rows: Vector, asked: Iterator[Vector]) -> tuple[list[float], float]:
    """Milliseconds of each question after the first, and the share of the true answer that was found."""
    times, found = [], 0
    for vector in asked:
        words = "[" + ",".join(f"{number:.8g}" for number in vector.tolist()) + "]"
        started = time.perf_counter()
        ids = {number for (number,) in connection.execute(_ASK, (words,))}
        times.append((time.perf_counter() - started) * 1000)
        best = np.argpartition(rows @ vector, -CANDIDATES)[-CANDIDATES:]
        found += len(ids & set(best.tolist()))
    return times[1:], found / (CANDIDATES * len(times))


def main() -> int:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pieces", type=int, default=100_000)
    options.add_argument("--questions", type=int, default=100)
    given = options.parse_args()
    rows = vectors(given.pieces, np.random.default_rng(0))
    shown = Shown(title=f"pgvector: {given.pieces:,} pieces of {DIMENSIONS} numbers, {CANDIDATES} candidates")
    for column in ("search", "p50 ms", "p99 ms", "found", "built in s", "index MB"):
        shown.add_column(column, justify="right")

    def measure(name: str, *built: str) -> None:
        asked = questions_near(rows, given.questions + 1, np.random.default_rng(1))
        times, share = ask(connection, rows, asked)
        p99 = statistics.quantiles(times, n=100)[98]
        shown.add_row(name, f"{statistics.median(times):.1f}", f"{p99:.1f}", f"{share:.2%}", *built)

    with postgresql_url() as url, psycopg.connect(url, autocommit=True) as connection:
        fill(connection, rows)
        measure("exact scan", "", "")
        connection.execute("SET maintenance_work_mem = '1GB'")
        started = time.perf_counter()
        connection.execute("CREATE INDEX piece_near ON piece USING hnsw (embedding vector_ip_ops)")
        took = f"{time.perf_counter() - started:.0f}"
        [(size,)] = connection.execute("SELECT pg_relation_size('piece_near')").fetchall()
        for looks_at in EF_SEARCH:
            connection.execute(f"SET hnsw.ef_search = {looks_at}")
            measure(f"HNSW, ef {looks_at}", took, f"{size / 1e6:.0f}")
    Console().print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
