"""The riglm that is measured, kept apart from the user's own data and configuration."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.process import Process

RIGLM = (sys.executable, "-m", "riglm")
"""The command, unless another one is given."""


def isolated(directory: Path) -> dict[str, str]:
    """An environment in which riglm records into `directory`, with none of the user's RIGLM_ variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RIGLM_")}
    return kept | {"RIGLM_DATA_DIR": str(directory)}


class Served:
    """`riglm serve` on a port of its own choice."""

    def __init__(
        self,
        command: Sequence[str],
        upstream: Sequence[str],
        directory: Path,
        *,
        arguments: Sequence[str] = ("--no-filter",),
        **settings: str,
    ) -> None:
        """Start it in `directory`, and wait until it listens.

        `upstream` ends its command line: `--url URL` or `-- COMMAND...`. `arguments` stand before it, and `settings`
        are further variables.

        Raises:
            StartFailed: it ended, or it does not listen.
        """
        directory.mkdir(parents=True, exist_ok=True)
        words = [*command, "serve", *arguments, "--port", "0", *upstream]
        environment = isolated(directory) | settings
        self.process = Process(words, directory / "riglm.log", environment=environment, directory=directory)
        self.port = 0
        try:
            self.process.wait_until(self._listens)
        except BaseException:
            self.process.stop()
            raise

    def _listens(self) -> bool:
        for line in self.process.log.read_bytes().splitlines():
            if b'"listening"' in line:
                self.port = int(json.loads(line)["port"])
        return self.port > 0
