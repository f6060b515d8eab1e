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

from tests.integration.controlled import WRITE_TOKEN, Controlled, controlled
from tests.integration.past import a_past

EXPECTED = """
[[operations]]
include-path = "/config"
include-method = "PUT"

# What a key may be stands in the document; what goes with what, and which keys are read at the start, no schema can say.
[operations.checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 403, 404, 409, 422, "5xx"]
"""


def main(words: Sequence[str]) -> int:
    """Run it; 0 when nothing failed."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.control schema", description=__doc__)
    options.add_argument("--examples", type=int, default=200, help="so many for each operation")
    options.add_argument("--seed", type=int, help="the same examples again")
    options.add_argument("--verbose", action="store_true", help="all that schemathesis says, not the end only")
    chosen = options.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="riglm-bench-") as directory:
        with controlled(Path(directory), past=a_past(time.time())) as riglm:
            more = [] if chosen.seed is None else ["--seed", str(chosen.seed)]
            done = schemathesis(riglm, "--max-examples", str(chosen.examples), *more)
        said = done.stdout.splitlines()
        print("\n".join(said if chosen.verbose or done.returncode else said[-30:]))
        complaints = [line for line in riglm.log.splitlines() if '"level": "error"' in line]
        print("\n".join(complaints))
    return 1 if done.returncode or complaints else 0


def schemathesis(riglm: Controlled, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it with all checks against a control API; `words` are options of its own."""
    configuration = riglm.folder / "schemathesis.toml"
    configuration.write_text(EXPECTED)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(configuration), "--no-color", "run"]
    token = ["--header", f"Authorization: Bearer {WRITE_TOKEN}"]
    checks = ["--checks", "all", "--continue-on-failure", "--no-shrink", *words]
    return subprocess.run(
        [*command, f"{riglm.control}/openapi.json", *token, *checks],
        cwd=riglm.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
