"""What is measured side by side: no proxy, riglm, and a proxy that everyone can install."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal

from benchmarks.cache import CHECKOUT, installation, make_environment
from benchmarks.load.http_session import HttpSession
from benchmarks.load.message import NoAnswer
from benchmarks.load.resources import UPSTREAM
from benchmarks.load.stdio_session import StdioSession
from benchmarks.process import Process, free_port, listens
from benchmarks.subject import isolated

Topology = Literal["stdio-stdio", "http-http", "http-stdio", "stdio-http"]
"""The client's side, then the upstream's."""

TOPOLOGIES: tuple[Topology, ...] = ("stdio-stdio", "http-http", "http-stdio", "stdio-http")
FASTMCP = "4.1.2"

clock = time.perf_counter


def upstream_command(where: str, tools: int) -> list[str]:
    """The upstream on `stdio` or a port. The path is set here since not every proxy passes its environment on."""
    return ["/usr/bin/env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", UPSTREAM, where, str(tools)]


def fastmcp_interpreter() -> str:
    """The interpreter of FastMCP's own environment, which is made once.

    Raises:
        InstallationFailed: pip failed.
    """
    pin = f"fastmcp-{FASTMCP}"
    directory = installation("fastmcp", pin, lambda to: _ignore(make_environment(to / "venv", pin.replace("-", "=="))))
    return str(directory / "venv" / "bin" / "python")


def _ignore(_: object) -> None:
    """The installer's result is found by its path."""


@dataclass(frozen=True, slots=True)
class Target:
    """One way from the client to the upstream. `command` is empty when there is nothing in between."""

    name: str
    command: tuple[str, ...] = ()
    is_riglm: bool = False

    def line(self, where: str, upstream: Sequence[str]) -> list[str]:
        """The command line: the client's side is `stdio` or a port; `upstream` is `-- COMMAND...` or a URL."""
        if not self.is_riglm:
            return [*self.command, where, *upstream]
        behind = upstream if upstream[0] == "--" else ("--url", *upstream)
        ahead = ("run", "--no-filter") if where == "stdio" else ("serve", "--no-filter", "--port", where)
        return [*self.command, *ahead, *behind]


@dataclass(slots=True)
class Running:
    """A target that is up, with one open session; `start_seconds` run until it had its first list."""

    target: Target
    session: StdioSession | HttpSession
    pid: int
    start_seconds: float
    proxy: Process | None = None
    beside: list[HttpSession] = field(default_factory=list)

    def stop(self) -> None:
        """End it, and the connections to it."""
        self.session.close()
        for other in self.beside:
            other.close()
        if self.proxy is not None:
            self.proxy.stop()


def start(target: Target, topology: Topology, tools: int, upstream: Process, port: int, directory: Path) -> Running:
    """Start a target in front of the upstream that listens on a port, or of one that it starts itself.

    Raises:
        StartFailed: it ended or does not listen.
        NoAnswer: it does not answer as it should.
    """
    ahead, behind = topology.split("-")
    own = Path(mkdtemp(prefix=f"{target.name.replace(' ', '-')}-", dir=directory))  # two may be up at a time
    environment = isolated(own) | {"NO_COLOR": "1", "HOME": str(own)}
    rest = ["--", *upstream_command("stdio", tools)] if behind == "stdio" else [f"http://127.0.0.1:{port}/mcp"]
    log = own / "log.txt"
    began = clock()
    if ahead == "stdio":
        line = target.line("stdio", rest) if target.command else upstream_command("stdio", tools)
        piped = StdioSession(line, log, environment, own)
        return _opened(Running(target, piped, piped.pid, 0), began, tools)
    if not target.command:
        return _opened(Running(target, HttpSession(port), upstream.pid, 0), began, tools)
    own_port = free_port()
    proxy = Process(target.line(str(own_port), rest), log, environment=environment, directory=own)
    running = Running(target, HttpSession(own_port), proxy.pid, 0, proxy)
    try:
        proxy.wait_until(lambda: listens(own_port))
    except BaseException:
        running.stop()
        raise
    return _opened(running, began, tools)


def _opened(running: Running, began: float, tools: int) -> Running:
    try:
        _take_list(running.session, tools)
        running.start_seconds = clock() - began
    except BaseException:
        running.stop()
        raise
    return running


def _take_list(session: StdioSession | HttpSession, tools: int) -> None:
    session.open()
    listed = session.ask("tools/list", {})[1].content()["tools"]
    if len(listed) != tools:
        raise NoAnswer(f"{len(listed)} of {tools} tools are listed")


def start_upstream(tools: int, directory: Path) -> tuple[Process, int]:
    """The upstream over HTTP that all targets share, and its port."""
    port = free_port()
    process = Process(upstream_command(str(port), tools), directory / "upstream.txt", environment=dict(os.environ))
    process.wait_until(lambda: listens(port))
    return process, port
