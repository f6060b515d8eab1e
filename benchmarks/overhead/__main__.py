"""What riglm costs beside no proxy and beside FastMCP's, in one run.

    python -m benchmarks.overhead [--topology http-http ...] [--tools 100 1000 5000] [--rounds 2] [--json]

All targets stand in front of the same fast upstream, stay open together, and are visited in turn, so that the noise of
the machine falls on all of them. riglm records, and filters nothing. Times are a client's: from the last byte sent to
the last byte received. On shared cores believe ratios and processor time; p99 is partly the machine's own.
"""

import argparse
import json
import os
import platform
import shlex
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.cache import InstallationFailed
from benchmarks.load.message import NoAnswer
from benchmarks.overhead.report import show
from benchmarks.overhead.run import run
from benchmarks.overhead.target import FASTMCP, TOPOLOGIES, Target, fastmcp_interpreter
from benchmarks.process import StartFailed
from benchmarks.subject import RIGLM

_errors = Console(stderr=True)


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--topology", nargs="+", choices=TOPOLOGIES, default=TOPOLOGIES, help="client side - upstream")
    options.add_argument("--tools", nargs="+", type=int, default=[100, 1000, 5000], help="the first gets everything")
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--riglm", default=shlex.join(RIGLM), help="the command to measure")
    options.add_argument("--no-peer", action="store_true", help="leave FastMCP out")
    options.add_argument(
        "--pin", type=int, metavar="CORE", help="run everything on one core: steadier latencies (Linux)"
    )
    options.add_argument("--json", action="store_true", help="print JSON only; seconds, MiB, KiB")
    return options.parse_args()


def main() -> int:
    chosen = arguments()
    if chosen.pin is not None:
        os.sched_setaffinity(0, {chosen.pin})
    try:
        targets = [Target("direct"), Target("riglm", tuple(shlex.split(chosen.riglm)), is_riglm=True)]
        if not chosen.no_peer:
            peer = str(Path(__file__).with_name("peer.py"))
            targets.append(Target(f"FastMCP {FASTMCP}", (fastmcp_interpreter(), peer)))
        results = {}
        for topology in chosen.topology:
            results[topology] = run(targets, topology, chosen.tools, chosen.rounds, _errors.print)
            if not chosen.json:
                show(topology, results[topology], chosen.tools, Console(width=120))
    except (InstallationFailed, StartFailed, NoAnswer) as error:
        _errors.print(f"overhead: {error}", style="red", markup=False)
        return 1
    if chosen.json:
        machine = {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
        print(json.dumps({"machine": machine, "rounds": chosen.rounds, "topologies": results}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
