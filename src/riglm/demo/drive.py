"""A real MCP client that plays a scene through `riglm run`."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from mcp import Client, StdioServerParameters, stdio_client
from mcp.types import CallToolResult, TextContent


@dataclass(frozen=True, slots=True)
class DemoStep:
    """One call: the tool as riglm names it, its arguments, and whether it is meant to fail."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fails: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Servers in the shape of `mcpServers`, and the visits of a client: each one session with its calls in order."""

    title: str
    servers: Mapping[str, Mapping[str, Any]]
    visits: tuple[tuple[DemoStep, ...], ...]


def npm_scene(programs: Path, directory: Path) -> Scene:
    """Three reference servers from npm, whose programs are in one directory; they may write below the other."""
    files = directory / "files"
    files.mkdir()
    letter = str(files / "letter.txt")
    servers: dict[str, dict[str, Any]] = {
        "everything": {"command": str(programs / "mcp-server-everything")},
        "filesystem": {"command": str(programs / "mcp-server-filesystem"), "args": [str(files)]},
        "memory": {
            "command": str(programs / "mcp-server-memory"),
            "env": {"MEMORY_FILE_PATH": str(directory / "memory.jsonl")},
        },
    }
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the letter"]}
    first = (
        DemoStep("everything__echo", {"message": "hello through riglm"}),
        DemoStep("filesystem__write_file", {"path": letter, "content": "Dear Charles,\n"}),
        DemoStep("filesystem__read_text_file", {"path": letter}),
        DemoStep("filesystem__read_text_file", {"path": str(files / "missing.txt")}, fails=True),
        DemoStep("memory__create_entities", {"entities": [entity]}),
        DemoStep("memory__search_nodes", {"query": "letter"}),
    )
    second = (
        DemoStep("memory__search_nodes", {"query": "Ada"}),
        DemoStep("filesystem__read_text_file", {"path": letter}),
        DemoStep("everything__get-sum", {"a": 40, "b": 2}),
        DemoStep("everything__trigger-long-running-operation", {"duration": 1, "steps": 4}),
    )
    return Scene(title="the reference servers of npm", servers=servers, visits=(first, second))


def bundled_scene() -> Scene:
    """Two small servers that come with riglm."""
    servers = {name: {"command": sys.executable, "args": ["-m", f"riglm.demo.{name}"]} for name in ("notes", "units")}
    first = (
        DemoStep("notes__write_note", {"title": "trip", "text": "12 miles along the coast"}),
        DemoStep("units__convert_length", {"value": 12, "unit": "mi", "to": "km"}),
        DemoStep("notes__read_note", {"title": "trip"}),
        DemoStep("notes__read_note", {"title": "missing"}, fails=True),
        DemoStep("units__celsius_to_fahrenheit", {"degrees": 21}),
    )
    second = (
        DemoStep("units__known_units"),
        DemoStep("notes__write_note", {"title": "shopping", "text": "3 m of rope"}),
        DemoStep("notes__find_notes", {"word": "rope"}),
        DemoStep("units__convert_length", {"value": 3, "unit": "m", "to": "ft"}),
    )
    return Scene(title="two bundled servers", servers=servers, visits=(first, second))


_MAX_PAGES = 50
_TIMEOUT_S = 30.0
_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What came back for one step: whether as meant, how long it took, and the beginning of its text."""

    step: DemoStep
    as_meant: bool
    duration_ms: float
    text: str


@dataclass(frozen=True, slots=True)
class DemoSession:
    """One session of the client: the protocol version, the tools listed, and the results in order."""

    protocol_version: str
    tools: tuple[str, ...]
    answers: tuple[DemoResult, ...]


async def drive(
    scene: Scene,
    *,
    configuration: Path,
    environment: Mapping[str, str],
    errors: TextIO,
    announce: Callable[[str], None],
) -> list[DemoSession]:
    """Run the sessions of the scene, each with a new riglm process; `announce` is called before each step."""
    arguments = ["-m", "riglm", "run", "--config", str(configuration)]
    visits: list[DemoSession] = []
    for steps in scene.visits:
        announce("starting riglm and the servers")
        server = StdioServerParameters(
            command=sys.executable, args=arguments, env=dict(environment), cwd=configuration.parent
        )
        async with Client(stdio_client(server, errlog=errors), read_timeout_seconds=_TIMEOUT_S) as client:
            tools = await _all_tools(client, {step.tool for step in steps})
            answers = []
            for step in steps:
                announce(f"calling {step.tool}")
                answers.append(await _take(client, step))
            visits.append(DemoSession(client.protocol_version, tools, tuple(answers)))
    return visits


async def _all_tools(client: Client, wanted: set[str]) -> tuple[str, ...]:
    """The list once it holds what is wanted: a server that starts late joins it late."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        names = await _list_tools(client)
        if wanted <= set(names) or time.monotonic() > deadline:
            return names
        await asyncio.sleep(_PAUSE_S)


async def _list_tools(client: Client) -> tuple[str, ...]:
    names: list[str] = []
    cursor = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        names += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            break
    return tuple(names)


async def _take(client: Client, step: DemoStep) -> DemoResult:
    started = time.perf_counter()
    result = await client.call_tool(step.tool, dict(step.arguments))
    duration_ms = (time.perf_counter() - started) * 1000
    return DemoResult(step, bool(result.is_error) is step.fails, duration_ms, _beginning(result))


def _beginning(result: CallToolResult) -> str:
    texts = (part.text for part in result.content if isinstance(part, TextContent))
    return " ".join(next(texts, "").split())[:60]


_VERSION = "2026.8.31"
PACKAGES = tuple(f"@modelcontextprotocol/server-{name}@{_VERSION}" for name in ("everything", "filesystem", "memory"))
"""What is installed: the versions that the demo was tried with."""

_OPTIONS = ("--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")


def install(directory: Path, deadline_s: float, packages: Sequence[str] = PACKAGES) -> Path | None:
    """Install servers below a directory; where their programs are, or None when npm is missing, late or fails."""
    if shutil.which("npx") is None or shutil.which("npm") is None:
        return None
    command = ["npm", "install", *_OPTIONS, "--prefix", str(directory), *packages]
    npm = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        done = npm.wait(deadline_s) == 0
    except subprocess.TimeoutExpired:
        done = False
    finally:
        if npm.poll() is None:
            os.killpg(npm.pid, signal.SIGKILL)
            npm.wait()
    return directory / "node_modules" / ".bin" if done else None
