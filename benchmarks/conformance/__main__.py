"""Does everything that passes directly also pass through riglm?

    python -m benchmarks.conformance [--legs server|client|auth|all] [--upstream http|stdio|all]
                                      [--filtering none|defaults|shadow|enforce] [--json]

Runs the official conformance suite against the reference server and with the reference client, directly and with riglm
in between, in both eras, and compares check by check. What it needs is installed once, by pip and npm, at pinned
versions. Exit code 0: nothing is lost but what the baseline explains; 1: something is; 2: the comparison could not run.
"""

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from benchmarks.cache import InstallationFailed
from benchmarks.conformance.comparison import Checks, compare
from benchmarks.conformance.judged import FILTERINGS, NO_FILTER, Judged
from benchmarks.conformance.kit import MCP, NODE, SUITE, Kit, installed
from benchmarks.conformance.legs import SPECS, Leg, Way, run
from benchmarks.conformance.report import Outcome, as_json, show
from benchmarks.process import StartFailed
from benchmarks.subject import RIGLM

_errors = Console(stderr=True)


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--legs", choices=["server", "client", "auth", "all"], default="all", help="whom the suite judges"
    )
    options.add_argument("--upstream", choices=["http", "stdio", "all"], default="all", help="for the server legs")
    options.add_argument(
        "--jobs", type=int, default=2 * (os.cpu_count() or 1), help="legs that run at once; they mostly wait"
    )
    options.add_argument("--riglm", default=shlex.join(RIGLM), help="the command to judge")
    options.add_argument("--filtering", choices=FILTERINGS, default=NO_FILTER, help="how riglm filters")
    options.add_argument("--spec", choices=SPECS, help="one protocol version only")
    options.add_argument("--keep", type=Path, help="a new directory for logs and the suite's own results")
    options.add_argument("--verbose", action="store_true", help="show every scenario")
    options.add_argument("--json", action="store_true", help="print JSON only")
    return options.parse_args()


def planned(legs: str, upstream: str, specs: tuple[str, ...] = SPECS) -> Iterator[Leg]:
    """The legs to run, the longest first; those through riglm need the direct one of their role and protocol."""
    ways: tuple[Way, ...] = ("stdio", "http") if upstream == "all" else ("http",) if upstream == "http" else ("stdio",)
    for spec in reversed(specs):
        if legs in {"auth", "all"}:
            yield from (Leg("auth", spec, "http"), Leg("auth", spec, "direct"))
        if legs in {"server", "all"}:
            yield from (Leg("server", spec, "direct"), *(Leg("server", spec, way) for way in ways))
        if legs in {"client", "all"}:
            yield from (Leg("client", spec, "direct"), Leg("client", spec, "http"))


def outcomes(kit: Kit, judged: Judged, legs: list[Leg], jobs: int, directory: Path) -> Iterator[Outcome]:
    """Run the legs, and compare each one through riglm with the direct one."""

    def reported(leg: Leg) -> Checks:
        checks = run(leg, kit, judged, directory / str(leg))
        _errors.print(f"{leg}: {len(checks)} scenarios", style="dim")
        return checks

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        found = dict(zip(legs, pool.map(reported, legs), strict=True))
    for leg in legs:
        if leg.way != "direct":
            direct = found[Leg(leg.role, leg.spec, "direct")]
            if not direct:  # or nothing could be lost
                raise StartFailed(f"no scenario ran directly at {leg.spec}")
            yield Outcome(leg, compare(direct, found[leg]))


def main() -> int:
    chosen = arguments()
    legs = list(planned(chosen.legs, chosen.upstream, (chosen.spec,) if chosen.spec else SPECS))
    judged = Judged(tuple(shlex.split(chosen.riglm)), chosen.filtering)
    with tempfile.TemporaryDirectory(prefix="riglm-conformance-") as temporary:
        try:
            directory = chosen.keep or Path(temporary)
            results = list(outcomes(installed(), judged, legs, chosen.jobs, directory))
        except (InstallationFailed, StartFailed) as error:
            _errors.print(f"conformance could not run: {error}", style="red", markup=False)
            return 2
    if chosen.json:
        print(json.dumps(as_json(results, {"mcp": MCP, "suite": SUITE, "node": NODE}), indent=1))
    else:
        show(results, Console(width=120), every_scenario=chosen.verbose)
    return 1 if any(outcome.unexplained for outcome in results) else 0


if __name__ == "__main__":
    sys.exit(main())
