"""A `riglm serve` with the control API, on free ports, over a data directory that is given."""

import contextlib
import json
import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.process import Process, free_port, listens


@dataclass(frozen=True, slots=True)
class Started:
    """Where clients find it, and where people do."""

    mcp: str
    control: str

    def ask(self, path: str) -> Any:
        """What the control API answers."""
        with urllib.request.urlopen(self.control + path, timeout=30) as answer:
            return json.load(answer)


@contextlib.contextmanager
def started(directory: Path, servers: Sequence[str], settings: Mapping[str, str] | None = None) -> Iterator[Started]:
    """Start it with what follows `riglm serve` to name servers; its data is `directory/data`."""
    ports = free_port(), free_port()
    own = ["--port", str(ports[0]), "--control", "--control-port", str(ports[1])]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RIGLM_")}
    environment = {**kept, "RIGLM_DATA_DIR": str(directory / "data"), **(settings or {})}
    command = [sys.executable, "-m", "riglm", "serve", *own, *servers]
    with Process(command, directory / "riglm.log", environment=environment, directory=directory) as riglm:
        riglm.wait_until(lambda: all(map(listens, ports)))
        yield Started(f"http://127.0.0.1:{ports[0]}/mcp", f"http://127.0.0.1:{ports[1]}")
