"""What the transcripts of earlier work are worth on the first day.

    python -m benchmarks.warm_start [--sessions 200] [--next 40] [--seeds 1 2 3] [--json]

A person has eight servers with 120 tools, and a dozen workflows of 4 to 10 tools, drawn by lot among some of them. The
sessions of 40 days are written down as Claude Code does it: with detours, calls that come by chance, popularity that
changes, sessions that were resumed, agents, calls of other tools, damaged lines. `riglm learn-from` reads them. Then a
riglm is started, and the sessions that come next are begun, asked for in other words: how many tools are listed first,
and what share of the tools that a session needs is listed, or sent by set_context? No tool is called, so nothing is
learned meanwhile. The control has learned from nothing. The ceiling is the best single list of 15 for these sessions,
known only in hindsight. Exit code 1 if learn-from takes 30 s, or less than 80 % is listed or sent after set_context.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.process import StartFailed
from benchmarks.warm_start.measure import MODES, ROOM, ceiling, first_lists, learn, riglm
from benchmarks.warm_start.transcripts import write
from benchmarks.warm_start.work import Person

_GOAL: Final = 0.80
_GOAL_SECONDS: Final = 30.0


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sessions", type=int, default=200, help="sessions in the transcripts")
    options.add_argument("--next", type=int, default=40, help="sessions that are begun afterwards")
    options.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="one person each")
    options.add_argument("--json", action="store_true", help="print JSON only")
    return options.parse_args()


async def measured(seed: int, sessions: int, following: int, directory: Path) -> dict[str, Any]:
    """One person, with and without the past."""
    person = Person(seed)
    folder = write(directory / "home", person.before(sessions), seed)
    work = person.after(following)
    learned = learn(directory / "taught", folder)
    again = learn(directory / "taught", folder)
    rows = {}
    for name in ("control", "taught"):
        with riglm(directory / name) as url:
            rows[name] = [asdict(await first_lists(url, surface, work)) for surface in MODES]
    account = learned.told["clients"][0]
    return {
        "seed": seed,
        "seconds": round(learned.seconds, 1),
        "bytes": account["bytes"],
        "calls": account["calls"]["new"],
        "calls_of_a_second_run": again.told["clients"][0]["calls"]["new"],
        "ceiling": ceiling(work),
        **rows,
    }


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="What the next sessions are given", title_justify="left")
    columns = ("seed", "learn-from s", "calls", "surface", "tools: control", "learned", "share: control", "learned")
    for column in (*columns, "ceiling", "with context: control", "learned"):
        table.add_column(column, justify="left" if column == "surface" else "right")
    for row in rows:
        for control, example in zip(row["control"], row["taught"], strict=True):
            shares = [control["at_first"], example["at_first"], row["ceiling"]]
            shares += [control["with_context"], example["with_context"]]
            told = [str(row["seed"]), f"{row['seconds']:.1f}", str(row["calls"]), example["surface"]]
            sizes = [f"{each['tools']:.0f}" for each in (control, example)]
            table.add_row(*told, *sizes, *(f"{share:.2f}" for share in shares))
    Console(width=130).print(table)


def is_reached(rows: list[dict[str, Any]]) -> bool:
    """Whether it was quick, added nothing twice, and the lists with a context hold enough."""
    return all(
        row["seconds"] < _GOAL_SECONDS
        and not row["calls_of_a_second_run"]
        and all(example["with_context"] >= _GOAL for example in row["taught"])
        for row in rows
    )


def main() -> int:
    chosen = arguments()
    rows = []
    try:
        for seed in chosen.seeds:
            with tempfile.TemporaryDirectory(prefix="riglm-warm-") as temporary:
                rows.append(asyncio.run(measured(seed, chosen.sessions, chosen.next, Path(temporary))))
    except StartFailed as error:
        print(f"could not run: {error}", file=sys.stderr)
        return 2
    if chosen.json:
        print(json.dumps({"room": ROOM, "people": rows}, indent=1))
    else:
        show(rows)
    return 0 if is_reached(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
