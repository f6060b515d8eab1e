"""How long the store takes for what people who look on ask of it.

A store of 100,000 calls and 10,000 lists, no two of them alike, answers each question several times. Processor time
counts, so that a busy machine makes little difference. The first time of a question is told apart: in it, some is
learned that is kept.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.store_filling import STORES, Shape, filled
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.application.reports.figures import read_figures
from riglm.domain.list_plan import Prices

GOAL_MS = 1_000.0
"""The dashboard keeps the figures for all that it shows of one range; the other questions take a fraction of this."""
_SHAPE = Shape(calls=20, lists=2)
_DAYS = 30.0
_TIMES = 9


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 when a question takes longer than it should."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control questions", description=__doc__)
    parser.add_argument("--store", choices=sorted(STORES), default="sqlite")
    parser.add_argument("--calls", type=int, default=100_000, metavar="N")
    asked = parser.parse_args(arguments)
    console = Console()
    rows = asked.calls // _SHAPE.calls * _SHAPE.records
    table = Table("question", "first, ms", "median, ms", title=f"{asked.store}, {asked.calls} calls")
    with filled(asked.store, rows, console, shape=_SHAPE, days=_DAYS) as url, SqlAnalytics(url) as store:
        store.refresh_cooccurrences(time.time())
        slowest = 0.0
        for name, question in _questions(store).items():
            first, *others = (_milliseconds(question) for _ in range(_TIMES))
            slowest = max(slowest, median(others))
            table.add_row(name, f"{first:.0f}", f"{median(others):.0f}")
    console.print(table)
    return int(slowest > GOAL_MS)


def _questions(store: SqlAnalytics) -> dict[str, Callable[[], object]]:
    [latest] = store.list_sessions(1)
    session, end = latest.session.id, latest.session.started_at + 3_600.0
    return {
        "a page of 100 sessions": lambda: store.list_sessions(100),
        "one session": lambda: (store.find_session(session), store.list_invocations(session, 200)),
        "figures": lambda: read_figures(store, Prices()),
        "figures of a day": lambda: read_figures(store, Prices(), since=end - 86_400.0),
        "how many sessions": store.count_sessions,
        "what is used together": lambda: store.list_top_cooccurrences(30),
    }


def _milliseconds(question: Callable[[], object]) -> float:
    began = time.process_time()
    question()
    return (time.process_time() - began) * 1000
