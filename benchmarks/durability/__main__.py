"""What is recorded survives kills and an unavailable store.

    python -m benchmarks.durability kill [--store sqlite postgresql] [--kills 100] [--json]
    python -m benchmarks.durability outage [--fault none locked stopped clickhouse ...] [--seconds 120] [--rate 200]
    python -m benchmarks.durability sustained [--store sqlite postgresql] [--seconds 15]
    python -m benchmarks.durability power [--where store spool] [--seconds 10]

`kill`: writers killed at random moments under load, and ended politely. `outage`: a client calls through `riglm run`
while nothing happens, or the store is locked, full, failing, slow, stopped or frozen, or a stand-in for ClickHouse
(its engine, chDB) is stopped, to which riglm sends besides; `full` needs root, `eio` and
`slow` need strace. `sustained`: records a second beside calls. `power`: whether all that is acknowledged was synced
before, with `durability: full`; it needs strace. PostgreSQL comes from a wheel. Exit code 1 if a number is not right.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.durability.faults import FAULTS
from benchmarks.durability.finding import CannotRun, Finding
from benchmarks.durability.kill import kill
from benchmarks.durability.outage import outage
from benchmarks.durability.power import power
from benchmarks.durability.stores import STORES
from benchmarks.durability.sustained import sustained
from benchmarks.load.message import NoAnswer

_errors = Console(stderr=True)


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", action="store_true", help="print JSON only")
    verbs = options.add_subparsers(dest="verb", required=True)
    killing = verbs.add_parser("kill")
    killing.add_argument("--kills", type=int, default=100)
    killing.add_argument("--terms", type=int, default=5, help="how many are ended by SIGTERM instead")
    leaving = verbs.add_parser("outage")
    leaving.add_argument("--fault", nargs="+", choices=tuple(FAULTS), default=tuple(FAULTS))
    leaving.add_argument("--seconds", type=float, default=120)
    leaving.add_argument("--rate", type=float, default=200, help="calls a second")
    lasting = verbs.add_parser("sustained")
    lasting.add_argument("--seconds", type=float, default=15)
    for verb in (killing, lasting):
        verb.add_argument("--store", nargs="+", choices=tuple(STORES), default=tuple(STORES))
    watching = verbs.add_parser("power")
    watching.add_argument("--where", nargs="+", choices=("store", "spool"), default=("store", "spool"))
    watching.add_argument("--seconds", type=float, default=10)
    for verb in (killing, leaving, lasting, watching):
        verb.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON only")
    return options.parse_args()


def runs(chosen: argparse.Namespace, progress: Progress) -> Iterator[tuple[str, list[Finding]]]:
    """Every measurement that was asked for, one after the other, with its name."""
    bar = progress.add_task("")

    def notify(words: str, done: int, total: int) -> None:
        progress.update(bar, description=words, completed=done, total=total)

    for name in getattr(chosen, {"outage": "fault", "power": "where"}.get(chosen.verb, "store")):
        with tempfile.TemporaryDirectory(prefix="riglm-durability-") as directory:
            place = Path(directory)
            try:
                if chosen.verb == "kill":
                    yield name, kill(name, chosen.kills, chosen.terms, place, notify)
                elif chosen.verb == "outage":
                    yield name, outage(name, chosen.seconds, chosen.rate, place, notify)
                elif chosen.verb == "power":
                    yield name, power(name, chosen.seconds, place, notify)
                else:
                    yield name, sustained(name, chosen.seconds, place, notify)
            except (CannotRun, NoAnswer, OSError) as error:
                _errors.print(f"{name}: {error}", style="red", markup=False)
                yield name, [Finding("could not be measured", 1, most=0)]


def main() -> int:
    chosen = arguments()
    found = {}
    with Progress(console=_errors) as progress:
        for name, findings in runs(chosen, progress):
            found[name] = findings
            if not chosen.json:
                progress.stop()
                show(f"{chosen.verb}: {name}", findings)
                progress.start()
    if chosen.json:
        told = {
            name: [asdict(each) | {"is_right": each.is_right} for each in each_of] for name, each_of in found.items()
        }
        print(json.dumps(told, indent=1))
    return 0 if all(each.is_right for findings in found.values() for each in findings) else 1


def show(title: str, findings: list[Finding]) -> None:
    """A table of what was found."""
    table = Table(title=title, title_justify="left")
    for column in ("", "measured", "should be", ""):
        table.add_column(column, justify="left" if not column else "right")
    for each in findings:
        value = f"{each.value:,.0f}" if float(each.value).is_integer() else f"{each.value:,.4g}"
        table.add_row(each.what, f"{value} {each.unit}", each.limit, "" if each.is_right else "[red]not so[/]")
    Console(width=120).print(table)


if __name__ == "__main__":
    sys.exit(main())
