"""A `riglm serve` with or without the control API, in front of a fast server."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from benchmarks.load.http_session import HttpSession
from benchmarks.process import Process, free_port, listens
from benchmarks.store_filling import Shape, fill
from riglm.adapters.analytics.sql import SqlAnalytics

_DAYS = 30.0
_TOOLS = "60"


class Riglm(NamedTuple):
    """Where clients find it, and where people do: nowhere without the control API."""

    port: int
    control: int | None
    pid: int


@contextlib.contextmanager
def served(directory: Path, *, control: bool, stored: int, now: float) -> Iterator[Riglm]:
    """Start it over a store with so many invocations of the days before `now`."""
    data = directory / "data"
    data.mkdir(parents=True)
    shape = Shape()
    with SqlAnalytics(f"sqlite:///{data / 'riglm.db'}") as store:
        rows = stored * shape.records // shape.calls
        fill(store, rows, shape=shape, first=now - _DAYS * 86_400, days=_DAYS, console=Console(stderr=True))
    ports = free_port(), free_port()
    command = [sys.executable, "-m", "riglm", "serve", "--port", str(ports[0])]
    command += ["--control-port", str(ports[1])] if control else []
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RIGLM_")}
    own = {"RIGLM_DATA_DIR": str(data), "RIGLM_EMBEDDER__PROVIDER": "static"}
    server = ["--", sys.executable, "-m", "benchmarks.load.upstream", "stdio", _TOOLS]
    with Process([*command, *server], directory / "riglm.log", environment=kept | own) as riglm:
        riglm.wait_until(lambda: all(map(listens, ports[: 1 + control])))
        yield Riglm(ports[0], ports[1] if control else None, riglm.pid)


def opened(port: int, count: int) -> list[HttpSession]:
    """So many clients that have shaken hands and asked for the tools, as all do."""
    sessions = [HttpSession(port) for _ in range(count)]
    for each in sessions:
        each.open()
        each.ask("tools/list", {})
    return sessions
