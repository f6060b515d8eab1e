"""How soon riglm knows what is needed next, when work repeats.

    python -m benchmarks.learning_curve [--points 0 5 20 100] [--rounds 1] [--surface dynamic stable] [--json]

Six workflows of 6 to 12 calls, drawn by lot from 160 tools, so that nothing that the tools say of themselves leads
from the words of a session to its tools; one call in ten is of any other tool. After so many sessions of them, every
workflow is measured `rounds` times, told in words that were not heard before, each time by a riglm started anew on a
copy of the store, so that nothing is learned from what is measured. Point 0 is the control: it knows descriptions, and
no use. `dynamic` is a client of the handshake era, `stable` one of the modern era; see `agent.py` for what exactly
counts as listed. Exit code 1 if 0.90 is not reached by 20 sessions, or searches do not fall.
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

from benchmarks.learning_curve.agent import ROOM
from benchmarks.learning_curve.curve import Point, curve
from benchmarks.process import StartFailed

_GOAL: Final = 0.90
_GOAL_SESSIONS: Final = 20


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--points", nargs="+", type=int, default=[0, 5, 20, 100], help="sessions before measuring")
    options.add_argument("--rounds", type=int, default=1, help="how often each workflow is measured at each point")
    options.add_argument("--surface", nargs="+", choices=("dynamic", "stable"), default=("dynamic", "stable"))
    options.add_argument("--keep", type=Path, help="a new directory for stores and logs")
    options.add_argument("--json", action="store_true", help="print JSON only")
    return options.parse_args()


def as_json(point: Point) -> dict[str, Any]:
    """A point with the shares that it stands for."""
    count = point.count
    return {
        "surface": point.surface,
        "sessions": point.sessions,
        "zero_hop": round(count.zero_hop / max(count.calls, 1), 3),
        "zero_hop_with_others": round((count.zero_hop + count.zero_hop_others) / max(count.calls + count.others, 1), 3),
        "searches_per_session": round(count.searches / max(count.sessions, 1), 2),
        "list_changes_per_session": round(count.list_changes / max(count.sessions, 1), 2),
        "tools_held": round(count.shown / max(count.sessions, 1), 1),
        "count": asdict(count),
    }


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"Zero-hop calls, at most {ROOM} tools listed", title_justify="left")
    for column in ("surface", "sessions before", "of the workflow", "of all calls", "searches", "changes", "held"):
        table.add_column(column, justify="left" if column == "surface" else "right")
    for row in rows:
        table.add_row(
            row["surface"],
            f"{row['sessions']}{' (control)' if not row['sessions'] else ''}",
            f"{row['zero_hop']:.2f}",
            f"{row['zero_hop_with_others']:.2f}",
            f"{row['searches_per_session']:.1f}",
            f"{row['list_changes_per_session']:.1f}",
            f"{row['tools_held']:.1f}",
        )
    Console(width=110).print(table)


def is_reached(rows: list[dict[str, Any]]) -> bool:
    """Whether the goal is reached by its session and kept, and a search is needed ever less."""
    learned = [row for row in rows if row["sessions"] >= _GOAL_SESSIONS]
    controls = {row["surface"]: row["searches_per_session"] for row in rows if not row["sessions"]}
    return all(
        row["zero_hop"] >= _GOAL and row["searches_per_session"] < controls.get(row["surface"], float("inf"))
        for row in learned
    )


async def points(chosen: argparse.Namespace, directory: Path) -> list[Point]:
    found = []
    for surface in chosen.surface:
        found += await curve(surface, sorted(chosen.points), chosen.rounds, directory)
    return found


def main() -> int:
    chosen = arguments()
    with tempfile.TemporaryDirectory(prefix="riglm-curve-") as temporary:
        try:
            rows = [as_json(point) for point in asyncio.run(points(chosen, chosen.keep or Path(temporary)))]
        except StartFailed as error:
            print(f"riglm did not start: {error}", file=sys.stderr)
            return 2
    if chosen.json:
        print(json.dumps({"room": ROOM, "points": rows}, indent=1))
    else:
        show(rows)
    return 0 if is_reached(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
