"""Many sessions, and what is left of them and of riglm.

    python -m benchmarks.sessions [--only answers closed abandoned processes endings] [--json]

`answers`: concurrent sessions with equal ids, each asking for a text of its own. `closed`, `abandoned`: the memory that
sessions leave. `processes`: upstream processes of sessions that closed. `endings`: what still runs five seconds after
riglm was ended. Exit code 1 if a number is over its limit. Takes some minutes; 2,000 sessions need `ulimit -n 8192`.
"""

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.load.message import NoAnswer
from benchmarks.process import StartFailed
from benchmarks.sessions.answers import ask_nonces
from benchmarks.sessions.endings import end
from benchmarks.sessions.finding import Finding
from benchmarks.sessions.remains import abandoned, closed, processes
from benchmarks.subject import RIGLM

_PARTS = ("answers", "closed", "abandoned", "processes", "endings")
_errors = Console(stderr=True)


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", nargs="+", choices=_PARTS, default=_PARTS)
    options.add_argument("--sessions", type=int, default=2_000, help="for `answers`")
    options.add_argument("--calls", type=int, default=5, help="in each session of `answers`")
    options.add_argument("--closed", type=int, default=1_000)
    options.add_argument("--abandoned", type=int, default=10_000)
    options.add_argument("--idle", type=int, default=45, help="seconds until an abandoned session is closed")
    options.add_argument("--riglm", default=shlex.join(RIGLM), help="the command to measure")
    options.add_argument("--json", action="store_true", help="print JSON only")
    return options.parse_args()


def parts(chosen: argparse.Namespace, directory: Path) -> dict[str, Iterator[Finding]]:
    """Every part; it runs when its findings are asked for."""
    riglm = tuple(shlex.split(chosen.riglm))
    return {
        "answers": chain(
            ask_nonces(riglm, "http", chosen.sessions, chosen.calls, directory),
            ask_nonces(riglm, "stdio", chosen.sessions, chosen.calls, directory),
        ),
        "closed": closed(riglm, chosen.closed, directory),
        "abandoned": abandoned(riglm, chosen.abandoned, chosen.idle, directory),
        "processes": processes(riglm, 20, directory),
        "endings": end(riglm, directory / "endings"),
    }


def main() -> int:
    chosen = arguments()
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="riglm-sessions-") as directory:
        for name, part in parts(chosen, Path(directory)).items():
            if name in chosen.only:
                try:
                    for finding in part:
                        findings.append(finding)
                        _errors.print(f"{finding.what}: {finding.value:.6g} {finding.unit} {finding.note}", style="dim")
                except (NoAnswer, StartFailed, OSError) as error:
                    _errors.print(f"{name}: {error}", style="red", markup=False)
                    findings.append(Finding(f"{name} could not be finished", 1, limit=0))
    if chosen.json:
        print(json.dumps([asdict(finding) | {"is_right": finding.is_right} for finding in findings], indent=1))
    else:
        show(findings)
    return 0 if all(finding.is_right for finding in findings) else 1


def show(findings: list[Finding]) -> None:
    """A table of all that was found."""
    table = Table(title="Sessions", title_justify="left")
    for column in ("", "measured", "at most", ""):
        table.add_column(column, justify="left" if not column else "right")
    for finding in findings:
        measured = f"{finding.value:,.4g} {finding.unit}" if finding.value < 1000 else f"{finding.value:,.0f}"
        limit = "" if finding.limit is None else f"{finding.limit:g} {finding.unit}"
        table.add_row(finding.what, measured, limit, finding.note if finding.is_right else "[red]over[/]")
    Console(width=120).print(table)


if __name__ == "__main__":
    sys.exit(main())
