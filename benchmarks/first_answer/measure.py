"""Fresh riglm processes in front of the tools: what they answer first and how soon, and the memory that they take."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cache import import_path
from benchmarks.first_answer.work import QUERIES
from benchmarks.load.http_session import HttpSession
from benchmarks.load.message import Answer
from benchmarks.load.stdio_session import StdioSession
from benchmarks.subject import RIGLM, Served, isolated

SEARCH: Final = "search_available_tools"
CONTEXT: Final = "set_context"
_ARGUMENT: Final = {SEARCH: "query", CONTEXT: "context"}
_UNRELATED: Final = "quantum chromodynamics"
_WORKER: Final = b"riglm.adapters.embedding.model_server"
_SETTINGS: Final = {
    "RIGLM_FILTERING__META_TOOLS__INDEX_STATUS": "true",
    "RIGLM_FILTERING__MAX_TOOLS": "8",
    "RIGLM_FILTERING__COLD_START_LIMIT": "8",
    "RIGLM_EMBEDDER__IDLE": "600",
}
_POLL_SECONDS: Final = 0.2

Session = StdioSession | HttpSession


@dataclass(frozen=True, slots=True)
class First:
    """The answer of a fresh process, the seconds from its start, and whether it says that nothing fits."""

    names: tuple[str, ...]
    seconds: float
    claims_nothing: bool


class Place:
    """A data directory, and a directory for the model server's socket, with so many tools behind riglm."""

    def __init__(self, directory: Path, tools: int) -> None:
        directory.mkdir()
        self.directory = directory
        self.sockets = directory / "sockets"
        self._upstream = ("--", sys.executable, "-m", "benchmarks.first_answer.upstream", str(tools))
        self.tools = tools

    @contextmanager
    def riglm(self, sockets: Path | None = None) -> Iterator[StdioSession]:
        """Start a `riglm run`, with another directory for the socket if one is given."""
        variables = _SETTINGS | {"XDG_RUNTIME_DIR": str(sockets or self.sockets), "PYTHONPATH": import_path()}
        environment = isolated(self.directory) | variables
        session = StdioSession((*RIGLM, "run", *self._upstream), self.directory / "run.log", environment)
        try:
            session.open()
            session.ask("tools/list", {})
            yield session
        finally:
            session.close()

    def store_vectors(self) -> None:
        """Have the vectors of all tools stored."""
        with self.riglm() as session:
            _call(session, SEARCH, _UNRELATED)
            while _status(session)["tools"]["embedded"] < self.tools:
                time.sleep(_POLL_SECONDS)

    def first(self, tool: str, text: str, *, is_running: bool) -> First:
        """Ask a fresh process, while the model server runs or not."""
        with tempfile.TemporaryDirectory() as other:
            began = time.perf_counter()
            with self.riglm(None if is_running else Path(other)) as session:
                answer = _call(session, tool, text)
                return First(_names(answer), time.perf_counter() - began, "No tool matches" in answer)

    def later(self, tool: str, seconds: float) -> list[tuple[str, ...]]:
        """Ask all queries of a process that has been in use for so many seconds, each in a session of its own."""
        (self.directory / "riglm.log").unlink(missing_ok=True)  # or an earlier run's port would be read
        served = Served(
            RIGLM,
            self._upstream,
            self.directory,
            arguments=(),
            **_SETTINGS,
            XDG_RUNTIME_DIR=str(self.sockets),
            PYTHONPATH=import_path(),
        )
        try:
            _ask_once(served.port, SEARCH, _UNRELATED)
            time.sleep(seconds)
            return [_names(_ask_once(served.port, tool, query)) for query in QUERIES]
        finally:
            served.process.stop()

    def idle_memory(self) -> float:
        """MiB of a `riglm run` in which nothing was searched."""
        with self.riglm() as session:
            time.sleep(3)
            return _mebibytes(session.pid)

    def memory(self, count: int) -> tuple[list[float], float]:
        """MiB of each of so many active `riglm run`, and of their model server."""
        with _several(self, count) as sessions:
            for session, query in zip(sessions, QUERIES, strict=False):
                _call(session, SEARCH, query)
            time.sleep(3)
            return [_mebibytes(each.pid) for each in sessions], sum(map(_mebibytes, model_servers(self.sockets)))


@contextmanager
def _several(place: Place, count: int) -> Iterator[list[StdioSession]]:
    if not count:
        yield []
        return
    with place.riglm() as session, _several(place, count - 1) as others:
        yield [session, *others]


def model_servers(sockets: Path) -> list[int]:
    """The process ids of the model servers with a socket below a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if _WORKER in command and any(each.startswith(os.fsencode(sockets)) for each in command):
                found.append(int(entry.name))
    return found


def _mebibytes(pid: int) -> float:
    """The proportional set size of a process: what several processes share counts in equal parts."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _ask_once(port: int, tool: str, text: str) -> str:
    """Ask in a session of its own over HTTP."""
    session = HttpSession(port)
    try:
        session.open()
        session.ask("tools/list", {})
        return _call(session, tool, text)
    finally:
        session.close()


def _call(session: Session, tool: str, text: str) -> str:
    answer: Answer
    _, answer, _ = session.ask("tools/call", {"name": tool, "arguments": {_ARGUMENT[tool]: text}})
    return answer.text()


def _status(session: Session) -> dict[str, dict[str, int]]:
    _, answer, _ = session.ask("tools/call", {"name": "index_status", "arguments": {}})
    status: dict[str, dict[str, int]] = json.loads(answer.text())
    return status


def _names(answer: str) -> tuple[str, ...]:
    """The names of the tools in an answer, in order."""
    said = json.loads(answer)
    sent = [tool["name"] for key in ("tools", "often_used_next") for tool in said.get(key, ())]
    return (*sent, *said.get("already_available", ()), *said.get("listed", ()), *said.get("near", ()))
