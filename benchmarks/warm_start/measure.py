"""What a riglm shows first, with transcripts learned from and without."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Final

import mcp_types as types
from mcp import Client

from benchmarks.cache import import_path
from benchmarks.process import StartFailed
from benchmarks.subject import RIGLM, Served, isolated
from benchmarks.warm_start.work import Work, servers

ROOM: Final = 15
"""Maximum number of tools in a list, and of definitions in the result of set_context."""

MODES: Final = {"dynamic": "legacy", "stable": "2026-07-28"}
"""The era of the SDK's client that gets each surface by itself."""

_OWN: Final = frozenset({"set_context", "search_available_tools", "call_tool", "mark_tool", "index_status"})
_SETTINGS: Final = {
    "RIGLM_FILTERING__MAX_TOOLS": str(ROOM),
    "RIGLM_FILTERING__COLD_START_LIMIT": str(ROOM),
    "RIGLM_FILTERING__ANSWER_TOOLS": str(ROOM),
    "RIGLM_TIMEOUTS__GRACE": "30",  # the first list is to have all eight servers, however busy the machine
}


@dataclass(frozen=True, slots=True)
class Shown:
    """What clients had on one surface, the mean over sessions.

    `tools` is the number of tools in the first list, `at_first` the share of the session's tools that this list holds,
    and `with_context` the share that is listed or sent after set_context.
    """

    surface: str
    tools: float
    at_first: float
    with_context: float


@dataclass(frozen=True, slots=True)
class Learned:
    """What `riglm learn-from --json` said, and the seconds that it took."""

    seconds: float
    told: dict[str, Any]


def configuration(directory: Path) -> Path:
    """A riglm.yaml with the eight servers."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "riglm.yaml"
    behind = {
        name: {
            "command": sys.executable,
            "args": ["-m", "benchmarks.warm_start.upstream", name],
            "env": {"PYTHONPATH": import_path()},
        }
        for name in servers()
    }
    file.write_text(json.dumps({"mcpServers": behind}))
    return file


def learn(directory: Path, folder: Path, *options: str) -> Learned:
    """Run the command on a folder of transcripts.

    Raises:
        StartFailed: it failed.
    """
    words = [*RIGLM, "learn-from", str(folder), "--config", str(configuration(directory)), "--json", *options]
    began = time.perf_counter()
    done = subprocess.run(words, capture_output=True, env=isolated(directory), cwd=directory, check=False)
    if done.returncode:
        raise StartFailed(f"learn-from: {done.stderr[-2000:].decode(errors='replace')}")
    return Learned(time.perf_counter() - began, json.loads(done.stdout))


@contextmanager
def riglm(directory: Path, **settings: str) -> Iterator[str]:
    """The URL of a riglm in front of the servers, started anew."""
    (directory / "riglm.log").unlink(missing_ok=True)  # or an earlier run's port would be read
    served = Served(
        RIGLM, (), directory, arguments=("--config", str(configuration(directory))), **(_SETTINGS | settings)
    )
    try:
        yield f"http://127.0.0.1:{served.port}/mcp"
    finally:
        served.process.stop()


async def first_lists(url: str, surface: str, sessions: Sequence[Work]) -> Shown:
    """Begin each session, and look at what is shown before and after it said what it is about; no tool is called."""
    sizes, at_first, with_context = [], [], []
    for work in sessions:
        async with Client(url, mode=MODES[surface], read_timeout_seconds=60, cache=None) as client:
            listed = await _listed(client)
            sizes.append(len(listed))
            at_first.append(share(listed, work))
            answer = await client.call_tool("set_context", {"context": work.prompt})
            given = [str(tool["name"]) for tool in _said(answer).get("tools", ())]
            with_context.append(share([*given, *await _listed(client)], work))
    return Shown(surface, mean(sizes), mean(at_first), mean(with_context))


def share(shown: Sequence[str], work: Work) -> float:
    """The share of a session's tools that is among those shown."""
    return len(work.tools.intersection(shown)) / len(work.tools)


def ceiling(sessions: Sequence[Work]) -> float:
    """The share that one list for all these sessions could have had, had somebody known them."""
    use = Counter(tool for work in sessions for tool in work.tools)
    best = [tool for tool, _ in use.most_common(ROOM)]
    return sum(share(best, work) for work in sessions) / len(sessions)


async def _listed(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools if tool.name not in _OWN]


def _said(answer: types.CallToolResult) -> dict[str, Any]:
    """Return the object that a meta-tool's result holds as text, empty after an error."""
    [content] = answer.content
    return json.loads(content.text) if isinstance(content, types.TextContent) and not answer.is_error else {}
