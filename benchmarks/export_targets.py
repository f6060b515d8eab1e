"""Questions about a million calls, asked of the store and of its export: `python -m benchmarks.export_targets`.

DuckDB and chDB (ClickHouse inside a process) are asked where they are installed: `pip install duckdb chdb`.
"""

import argparse
import importlib.util
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.store_filling import STORES, Shape, filled, multiply_calls
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.export.files import FileFormat, export_files
from riglm.ports.maintenance import RecordKind

FORMATS: tuple[FileFormat, ...] = ("parquet", "jsonl", "csv")
_SHAPE = Shape(calls=20, lists=1)
_TIMES = 3
_TIMES_MORE = 20

QUESTIONS = {
    "calls, failures, mean ms by tool": (
        "SELECT tool, count(*), sum(CASE WHEN success THEN 0 ELSE 1 END), avg(duration_ms) FROM {calls} GROUP BY tool"
    ),
    "calls and sessions by day": (
        "SELECT {day} AS d, count(*), count(DISTINCT session_id) FROM {calls} GROUP BY {day} ORDER BY d"
    ),
    "tools used together, 20 best": (
        "SELECT a.tool, b.tool, count(DISTINCT a.session_id) AS n FROM {calls} AS a JOIN {calls} AS b"
        " ON a.session_id = b.session_id AND a.tool < b.tool GROUP BY a.tool, b.tool ORDER BY n DESC LIMIT 20"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One export of all calls of a store."""

    store: str
    format: str
    rows: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The best of a few times that a question was asked, in milliseconds."""

    asked: str
    question: str
    ms: float


Ask = Callable[[str], Any]


def exported(kind: str, url: str, directory: Path, format_: FileFormat) -> Export:
    """All calls of a store as one file."""
    began = time.perf_counter()
    with SqlAnalytics(url) as store:
        done = export_files(
            store, directory, format_, [RecordKind.INVOCATIONS], since=0.0, about={}, progress=lambda _, __: None
        )
    table = done[RecordKind.INVOCATIONS]
    seconds = round(time.perf_counter() - began, 1)
    return Export(store=kind, format=format_, rows=table.rows, bytes=table.bytes, seconds=seconds)


def answers(asked: str, ask: Ask, calls: str, day: str) -> list[Answer]:
    """Ask all questions, each a few times."""
    found = []
    for question, query in QUESTIONS.items():
        best = float("inf")
        for _ in range(_TIMES):
            began = time.perf_counter()
            ask(query.format(calls=calls, day=day))
            best = min(best, time.perf_counter() - began)
        found.append(Answer(asked=asked, question=question, ms=round(best * 1000, 1)))
    return found


def of_sqlite(url: str) -> list[Answer]:
    file = url.removeprefix("sqlite:///")
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        return answers(
            "SQLite, the store",
            lambda query: connection.execute(query).fetchall(),
            "invocation",
            "cast(timestamp/86400 AS INT)",
        )
    finally:
        connection.close()


def of_postgresql(url: str) -> list[Answer]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE invocation")

        def ask(query: str) -> Any:
            return connection.execute(query).fetchall()

        return answers("PostgreSQL, the store", ask, "invocation", "floor(timestamp/86400)")


def of_duckdb(parquet: Path, jsonl: Path) -> list[Answer]:
    duckdb: Any = importlib.import_module("duckdb")
    connection = duckdb.connect()

    def ask(query: str) -> Any:
        return connection.execute(query).fetchall()

    found = answers("DuckDB, Parquet", ask, f"read_parquet('{parquet}')", "strftime(timestamp, '%Y-%m-%d')")
    return found + answers("DuckDB, JSON lines", ask, f"read_json('{jsonl}')", "strftime(timestamp, '%Y-%m-%d')")


def of_clickhouse(parquet: Path) -> list[Answer]:
    chdb: Any = importlib.import_module("chdb")
    return answers(
        "ClickHouse (chDB), Parquet",
        lambda query: str(chdb.query(query, "CSV")),
        f"file('{parquet}', Parquet)",
        "toDate(timestamp)",
    )


def measure(calls: int, console: Console) -> tuple[list[Export], list[Answer]]:
    """Fill both stores, export them, and ask whoever is there."""
    exports: list[Export] = []
    found: list[Answer] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="riglm-export-")))
        for kind, ask in zip(STORES, (of_sqlite, of_postgresql), strict=True):
            url = stack.enter_context(filled(kind, calls // _TIMES_MORE, console, shape=_SHAPE))
            multiply_calls(url, _TIMES_MORE)
            exports += [exported(kind, url, directory / kind / each, each) for each in FORMATS]
            found += ask(url)
        parquet, jsonl = (directory / "sqlite" / format_ / f"invocations.{format_}" for format_ in ("parquet", "jsonl"))
        if _is_there("duckdb", console):
            found += of_duckdb(parquet, jsonl)
        if _is_there("chdb", console):
            found += of_clickhouse(parquet)
    return exports, found


def _is_there(module: str, console: Console) -> bool:
    if importlib.util.find_spec(module) is not None:
        return True
    console.print(f"{module} is not installed and was not asked: pip install {module}")
    return False


def show(exports: list[Export], found: list[Answer], console: Console) -> None:
    """Print tables for people."""
    table = Table(title="Exports of all calls", title_justify="left")
    for column in ("store", "format", "rows", "MB", "bytes a row", "seconds", "rows a second"):
        table.add_column(column, justify="left" if column in {"store", "format"} else "right")
    for each in exports:
        size = (f"{each.rows:,}", f"{each.bytes / 1e6:.1f}", f"{each.bytes / each.rows:.0f}")
        table.add_row(each.store, each.format, *size, f"{each.seconds:.1f}", f"{each.rows / each.seconds:,.0f}")
    console.print(table)
    table = Table(title="Questions, milliseconds", title_justify="left")
    table.add_column("asked")
    for question in QUESTIONS:
        table.add_column(question, justify="right")
    for asked in dict.fromkeys(each.asked for each in found):
        table.add_row(asked, *(f"{each.ms:,.0f}" for each in found if each.asked == asked))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.export_targets", description=__doc__)
    parser.add_argument("--calls", type=int, default=1_100_000, help="About so many.")
    parser.add_argument("--json", action="store_true", help="Print JSON only.")
    given = parser.parse_args()
    exports, found = measure(given.calls, Console(stderr=True))
    if given.json:
        told = {"exports": [asdict(each) for each in exports], "answers": [asdict(each) for each in found]}
        print(json.dumps(told, indent=2))
    else:
        show(exports, found, Console(width=130))


if __name__ == "__main__":
    main()
