"""Whether first tool lists are complete, and how soon they come.

    python -m benchmarks.complete_lists [--starts 20] [--json]

Four reference servers are installed from npm into the cache of the benchmarks. A client that riglm does not know
connects on stdio and over HTTP: to a riglm with a new data directory (first starts), and to one whose store has the
catalogs (later starts). The surface is `full`, so lists have all tools that riglm knows. On stdio the client sends
`initialize` as soon as it has started riglm, so the time of `initialize` includes the start of the process. The time of
a list is from the result of `initialize` to that of `tools/list`. Exit code 1 if a list is incomplete, or if a list of
a later start takes longer than 0.3 s.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.cache import InstallationFailed, installation
from benchmarks.load.http_session import HttpSession
from benchmarks.load.message import NoAnswer
from benchmarks.load.stdio_session import StdioSession
from benchmarks.process import StartFailed
from benchmarks.subject import RIGLM, Served, isolated
from riglm.demo.agent import PACKAGES, install

GOAL_SECONDS: Final = 0.3
_INSTALL_SECONDS: Final = 180.0
_SETTLE_SECONDS: Final = 3.0
_PACKAGES: Final = (*PACKAGES, "@modelcontextprotocol/server-sequential-thinking@2026.8.31")

_EVERYTHING: Final = {"RIGLM_FILTERING__SURFACE": "full"}
"""Lists pass through the filter, and have all tools that riglm knows."""

Session = StdioSession | HttpSession


@dataclass(frozen=True, slots=True)
class First:
    """A first list: seconds until the result of `initialize`, from there to the list, and the number of tools."""

    initialize: float
    list: float
    tools: int


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--starts", type=int, default=20, help="starts of each kind")
    options.add_argument("--json", action="store_true", help="print JSON only")
    return options.parse_args()


def programs() -> Path:
    """The directory of the servers' programs, installed the first time.

    Raises:
        InstallationFailed: npm is missing or fails.
    """

    def install_all(directory: Path) -> None:
        if install(directory, _INSTALL_SECONDS, _PACKAGES) is None:
            raise InstallationFailed("npm could not install the servers")

    return installation("complete-lists", _PACKAGES[0].rpartition("@")[2], install_all) / "node_modules" / ".bin"


def configuration(directory: Path, found: Path) -> Path:
    """A riglm.yaml with the four servers."""
    directory.mkdir(parents=True)
    servers = {
        "everything": {"command": str(found / "mcp-server-everything")},
        "filesystem": {"command": str(found / "mcp-server-filesystem"), "args": [str(directory)]},
        "memory": {
            "command": str(found / "mcp-server-memory"),
            "env": {"MEMORY_FILE_PATH": str(directory / "memory.jsonl")},
        },
        "thinking": {"command": str(found / "mcp-server-sequential-thinking")},
    }
    file = directory / "riglm.yaml"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


def first_list(session: Session) -> First:
    """Shake hands and list."""
    began = time.perf_counter()
    session.open()
    initialized = time.perf_counter() - began
    answer = session.ask("tools/list", {})[1]
    listed = time.perf_counter() - began - initialized
    tools = [tool["name"] for tool in answer.content()["tools"]]
    return First(initialized, listed, sum("__" in name for name in tools))


@contextmanager
def on_stdio(directory: Path) -> Iterator[Session]:
    command = [*RIGLM, "run", "--config", str(directory / "riglm.yaml")]
    session = StdioSession(command, directory / "riglm.log", isolated(directory) | _EVERYTHING, directory)
    try:
        yield session
    finally:
        session.close()


@contextmanager
def over_http(directory: Path) -> Iterator[Session]:
    (directory / "riglm.log").unlink(missing_ok=True)  # the port is read from it
    served = Served(RIGLM, ("--config", str(directory / "riglm.yaml")), directory, arguments=(), **_EVERYTHING)
    session = HttpSession(served.port)
    try:
        yield session
    finally:
        session.close()
        served.process.stop()


def measured(
    connected: Callable[[Path], AbstractContextManager[Session]], directory: Path, found: Path, starts: int
) -> dict[str, list[First]]:
    """The first lists of both kinds of starts."""
    firsts, laters = [], []
    for number in range(starts):
        configuration(directory / str(number), found)
        with connected(directory / str(number)) as session:
            firsts.append(first_list(session))
            if number == 0:
                time.sleep(_SETTLE_SECONDS)  # the catalogs are being stored
        if number:
            shutil.rmtree(directory / str(number))
    for _ in range(starts):
        with connected(directory / "0") as session:
            laters.append(first_list(session))
    return {"first": firsts, "later": laters}


def main() -> int:
    options = arguments()
    try:
        found = programs()
        with tempfile.TemporaryDirectory(prefix="riglm-lists-", ignore_cleanup_errors=True) as name:
            results = {
                transport: measured(connected, Path(name) / transport, found, options.starts)
                for transport, connected in (("stdio", on_stdio), ("http", over_http))
            }
    except (InstallationFailed, StartFailed, NoAnswer, OSError) as error:
        print(f"complete lists: {error}", file=sys.stderr)
        return 1
    every = [first for kinds in results.values() for lists in kinds.values() for first in lists]
    whole = max(first.tools for first in every)
    if options.json:
        print(
            json.dumps(
                {key: {kind: list(map(asdict, each)) for kind, each in kinds.items()} for key, kinds in results.items()}
            )
        )
    else:
        show(results, whole)
    is_soon = all(first.list <= GOAL_SECONDS for kinds in results.values() for first in kinds["later"])
    return 0 if is_soon and all(first.tools == whole for first in every) else 1


def show(results: dict[str, dict[str, list[First]]], whole: int) -> None:
    table = Table(title=f"First lists of four npm servers with {whole} tools", title_justify="left")
    for column in ("transport", "start", "complete", "initialize: median s", "list after it: median s", "max s"):
        table.add_column(column, justify="right" if column.endswith("s") else "left")
    for transport, kinds in results.items():
        for kind, lists in kinds.items():
            complete = f"{sum(first.tools == whole for first in lists)} of {len(lists)}"
            times = [first.list for first in lists]
            greeted = statistics.median(first.initialize for first in lists)
            told = [f"{greeted:.2f}", f"{statistics.median(times):.2f}", f"{max(times):.2f}"]
            table.add_row(transport, kind, complete, *told)
    Console(width=110).print(table)


if __name__ == "__main__":
    sys.exit(main())
