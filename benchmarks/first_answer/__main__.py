"""What a fresh riglm answers first, how soon, and what several of them take of the memory.

    python -m benchmarks.first_answer [--tools 120 500] [--queries 40] [--later 60] [--json]

The vectors of all tools are stored by an earlier process. Then each query, which shares no word with any tool, is the
first search, or the first set_context, of a process of its own, while the model server runs and while it does not. The
answers are compared with those of a process that has been in use for `--later` seconds. Seconds are those from the
start of the process to the answer, the handshake and the list included. Memory is the proportional set size.

Exit code 1 if an answer differs, says that nothing fits while a later one names tools, or comes after 1.5 s (4 s where
the model server has to start), or if five active processes with the model take more than 600 MiB or an idle one 75 MiB.
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.first_answer.measure import CONTEXT, SEARCH, Place
from benchmarks.first_answer.work import QUERIES

_MAX_SECONDS: Final = {True: 1.5, False: 4.0}
_MAX_ACTIVE_MIB: Final = 600.0
_MAX_IDLE_MIB: Final = 75.0
_PROCESSES: Final = 5


@dataclass(frozen=True, slots=True)
class Row:
    """The first answers for one number of tools, one question, and a model server that runs or does not."""

    tools: int
    asked: str
    model_server_runs: bool
    queries: int
    same: int
    without_tools: int
    median_seconds: float
    max_seconds: float

    @property
    def holds(self) -> bool:
        """True if all answers are the same as later, in time."""
        return self.same == self.queries and self.max_seconds <= _MAX_SECONDS[self.model_server_runs]


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB of one idle process, and of five active ones with their model server."""

    tools: int
    idle: float
    active: list[float]
    model_server: float

    @property
    def total(self) -> float:
        """MiB of all active processes together."""
        return sum(self.active) + self.model_server

    @property
    def holds(self) -> bool:
        """True if both are within their limits."""
        return self.total <= _MAX_ACTIVE_MIB and self.idle <= _MAX_IDLE_MIB


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tools", nargs="+", type=int, default=[120, 500], help="tools behind riglm")
    options.add_argument("--queries", type=int, default=len(QUERIES), help="how many of the forty queries")
    options.add_argument("--later", type=float, default=60, help="seconds in use before the later answers")
    options.add_argument("--json", action="store_true", help="print JSON only")
    return options.parse_args()


def measured(place: Place, queries: int, later: float) -> tuple[list[Row], Memory]:
    """All figures for one number of tools."""
    place.store_vectors()
    rows = []
    for asked in (SEARCH, CONTEXT):
        expected = place.later(asked, later)[:queries]
        for is_running in (True, False):
            first = [place.first(asked, query, is_running=is_running) for query in QUERIES[:queries]]
            seconds = [each.seconds for each in first]
            rows.append(
                Row(
                    tools=place.tools,
                    asked=asked,
                    model_server_runs=is_running,
                    queries=queries,
                    same=sum(each.names == names for each, names in zip(first, expected, strict=True)),
                    without_tools=sum(each.claims_nothing for each in first),
                    median_seconds=round(statistics.median(seconds), 2),
                    max_seconds=round(max(seconds), 2),
                )
            )
    active, server = place.memory(_PROCESSES)
    return rows, Memory(
        place.tools, round(place.idle_memory(), 1), [round(each, 1) for each in active], round(server, 1)
    )


def show(rows: list[Row], memory: list[Memory]) -> None:
    table = Table(title="First answers of fresh processes", title_justify="left")
    for column in ("tools", "asked", "model server", "same as later", "no tool fits", "median s", "max s", "holds"):
        table.add_column(column, justify="left" if column in ("asked", "model server") else "right")
    for row in rows:
        state = "runs" if row.model_server_runs else "starts"
        same = f"{row.same} of {row.queries}"
        times = (f"{row.median_seconds:.2f}", f"{row.max_seconds:.2f}")
        table.add_row(str(row.tools), row.asked, state, same, str(row.without_tools), *times, _yes(row.holds))
    Console(width=120).print(table)
    table = Table(title="Memory in MiB (PSS)", title_justify="left")
    for column in ("tools", "idle process", f"{_PROCESSES} active processes", "model server", "active in all", "holds"):
        table.add_column(column, justify="right")
    for each in memory:
        active = " ".join(f"{one:.0f}" for one in each.active)
        table.add_row(
            str(each.tools),
            f"{each.idle:.0f}",
            active,
            f"{each.model_server:.0f}",
            f"{each.total:.0f}",
            _yes(each.holds),
        )
    Console(width=120).print(table)


def _yes(holds: bool) -> str:
    return "yes" if holds else "NO"


def main() -> int:
    given = arguments()
    rows: list[Row] = []
    memory: list[Memory] = []
    with tempfile.TemporaryDirectory() as directory:
        for count in given.tools:
            found, taken = measured(Place(Path(directory) / str(count), count), given.queries, given.later)
            rows += found
            memory.append(taken)
    if given.json:
        print(json.dumps({"first_answers": [asdict(row) for row in rows], "memory": [asdict(one) for one in memory]}))
    else:
        show(rows, memory)
    return 0 if all(row.holds for row in rows) and all(each.holds for each in memory) else 1


if __name__ == "__main__":
    sys.exit(main())
