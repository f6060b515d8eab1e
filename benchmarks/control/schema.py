"""Whether the control API keeps what its OpenAPI document promises: schemathesis with all its checks.

    python -m benchmarks.control schema [--examples 200] [--seed N] [--verbose]

Against a `riglm serve` with tokens, in front of a server with tools, over a store with sessions of the last hours.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.integration.past import a_past, definitions, listing_server

from benchmarks.control.started import started
from riglm.adapters.analytics.sql import SqlAnalytics

TOKEN: Final = "only-for-this-benchmark-0123456789"
# What each key may be stands in the document; what goes with what, and what is read at the start only, no schema says.
_EXPECTED: Final = """
[[operations]]
include-path = "/config"
include-method = "PUT"

[operations.checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 403, 404, 409, 412, 422, "5xx"]
"""


def main(words: Sequence[str]) -> int:
    """Run it; 0 when nothing failed."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.control schema", description=__doc__)
    options.add_argument("--examples", type=int, default=200, help="so many for each operation")
    options.add_argument("--seed", type=int, help="the same examples again")
    options.add_argument("--verbose", action="store_true", help="all that schemathesis says, not the end only")
    chosen = options.parse_args(words)
    more = [] if chosen.seed is None else ["--seed", str(chosen.seed)]
    with tempfile.TemporaryDirectory(prefix="riglm-bench-") as name:
        directory = Path(name)
        (directory / "data").mkdir()
        with SqlAnalytics(f"sqlite:///{directory / 'data' / 'riglm.db'}") as store:
            store.record_many(a_past(time.time()))
        tools = directory / "tools.json"
        tools.write_text(definitions())
        with started(directory, ["--", *listing_server(tools)], {"RIGLM_CONTROL__TOKEN": TOKEN}) as riglm:
            done = schemathesis(riglm.control, TOKEN, directory, "--max-examples", str(chosen.examples), *more)
        rate_limited_log = [
            line for line in (directory / "riglm.log").read_text().splitlines() if '"level": "error"' in line
        ]
    said = done.stdout.splitlines()
    print("\n".join([*(said if chosen.verbose or done.returncode else said[-30:]), *rate_limited_log]))
    return 1 if done.returncode or rate_limited_log else 0


def schemathesis(control: str, token: str, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it with all its checks against the control API at this URL; `words` are options of its own."""
    configuration = directory / "schemathesis.toml"
    configuration.write_text(_EXPECTED)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(configuration), "--no-color", "run"]
    options = ["--header", f"Authorization: Bearer {token}", "--checks", "all", "--continue-on-failure", *words]
    return subprocess.run(
        [*command, f"{control}/openapi.json", *options],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
