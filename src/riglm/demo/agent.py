"""The scripted agent of the demo: its sessions, its servers, and an MCP client on stdio that works through one."""

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Self, cast

from riglm.demo.server import DEFINITIONS
from riglm.domain.errors import RiglmError
from riglm.domain.protocol import HANDSHAKE_VERSIONS

ROOT: Final = "/project"
"""Directory of the files in the arguments of the sessions, and in the table of the bundled server."""

_SESSIONS: Final = Path(__file__).with_name("workflows.json")
_SEED: Final = 1
_TIMEOUT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call. `need` describes the tool in the words with which the agent searches if the list lacks it."""

    tool: str
    need: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class WorkSession:
    """One session of the agent: the kind of work, and its calls in order."""

    title: str
    steps: tuple[Step, ...]


def plan_sessions(root: str = ROOT) -> list[WorkSession]:
    """Return the sessions in order, the kinds of work mixed; `root` replaces the directory of the files."""
    workflows = json.loads(_SESSIONS.read_text("utf-8").replace(ROOT, root))
    draw = random.Random(_SEED)  # noqa: S311  # two runs have to be the same
    planned = []
    for number in range(len(workflows[0]["cases"])):
        for workflow in draw.sample(workflows, len(workflows)):
            case = workflow["cases"][number]
            chosen = [step for step in workflow["steps"] if draw.random() < step.get("share", 1)]
            steps = (Step(each["tool"], each["need"], _filled(each["arguments"], case)) for each in chosen)
            planned.append(WorkSession(workflow["title"], tuple(steps)))
    return planned


def _filled(value: Any, case: Mapping[str, Any]) -> Any:
    """Return arguments with the values of a case; a text that is only a placeholder gets the type of the value."""
    if isinstance(value, dict):
        return {name: _filled(each, case) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, case) for each in value]
    if not isinstance(value, str):
        return value
    return case[value[1:-1]] if value[1:-1] in case else value.format_map(case)


@dataclass(slots=True)
class SessionLog:
    """What the agent did: the names in its first list, and its calls of tools that were not in the list."""

    listed: tuple[str, ...] = ()
    found: list[tuple[str, str]] = field(default_factory=list)
    """Tools found by a search, each with the words of the search."""


class Agent:
    """A client with a riglm process, which ends with it."""

    def __init__(self, command: Sequence[str], directory: Path, environment: Mapping[str, str], log: IO[bytes]) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the demo, which then ends riglm
        )
        self._input, self._output = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        self._last_id = 0
        self._rest = b""
        self._is_list_stale = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._input.close()
            self._process.wait(_TIMEOUT_SECONDS)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._output.close()

    def work(self, session: WorkSession) -> SessionLog:
        """Open the connection, and make all calls of a session.

        Raises:
            RiglmError: riglm ended or did not answer, a search did not find a tool, or a call failed.
        """
        client = {"name": "riglm-demo", "version": "1.0"}
        opening = {"protocolVersion": HANDSHAKE_VERSIONS[-1], "capabilities": {}, "clientInfo": client}
        self._request("initialize", opening)
        self._send({"method": "notifications/initialized"})
        listed = self._list_tools()
        log, known = SessionLog(tuple(sorted(listed))), set[str]()
        for step in session.steps:
            if self._is_list_stale:
                listed = self._list_tools()
            if step.tool in listed:
                self._call(step.tool, step.arguments)
                continue
            if step.tool not in known:
                known |= self._search(step)
                log.found.append((step.tool, step.need))
            self._call("call_tool", {"name": step.tool, "arguments": step.arguments})
        return log

    def _list_tools(self) -> set[str]:
        self._is_list_stale = False
        names: set[str] = set()
        cursor: dict[str, Any] | None = {}
        while cursor is not None:
            page = self._request("tools/list", cursor)
            names.update(tool["name"] for tool in page["tools"])
            cursor = {"cursor": page["nextCursor"]} if page.get("nextCursor") else None
        return names

    def _search(self, step: Step) -> set[str]:
        """Return the tools whose definitions a search brings."""
        found = json.loads(self._call("search_available_tools", {"query": step.need}))
        names = {tool["name"] for tool in (*found["tools"], *found.get("often_used_next", ()))}
        if step.tool not in names:
            raise RiglmError(f"the search for {step.need!r} did not find {step.tool}")
        return names

    def _call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        result = self._request("tools/call", {"name": tool, "arguments": arguments})
        text = " ".join(part.get("text", "") for part in result["content"])
        if result.get("isError"):
            raise RiglmError(f"the call of {arguments.get('name', tool)} failed: {text}")
        return text

    def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._last_id += 1
        self._send({"id": self._last_id, "method": method, "params": params})
        for message in self._messages():
            self._is_list_stale |= message.get("method") == "notifications/tools/list_changed"
            if message.get("id") == self._last_id and "method" not in message:
                if "result" not in message:
                    raise RiglmError(f"{method} failed: {message['error'].get('message')}")
                return dict(message["result"])
        raise RiglmError(f"riglm ended during {method}")

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            self._input.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self._input.flush()
        except BrokenPipeError as error:
            raise RiglmError("riglm ended") from error

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Yield what riglm sends until it closes its output."""
        while True:
            line, separator, rest = self._rest.partition(b"\n")
            if separator:
                self._rest = rest
                yield json.loads(line)
                continue
            if not select.select([self._output], [], [], _TIMEOUT_SECONDS)[0]:
                raise RiglmError(f"riglm did not answer within {_TIMEOUT_SECONDS:g} s")
            data = os.read(self._output.fileno(), 1 << 16)
            if not data:
                return
            self._rest += data


_VERSION: Final = "2026.8.31"
PACKAGES: Final = tuple(
    f"@modelcontextprotocol/server-{name}@{_VERSION}" for name in ("everything", "filesystem", "memory")
)
"""The packages of the demo, in the versions with which its sessions were tried."""

_OPTIONS: Final = ("--prefer-offline", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")


def install(directory: Path, timeout: float, packages: Sequence[str] = PACKAGES) -> Path | None:
    """Install packages below a directory and return that of their programs; None if npm is missing, late or fails."""
    if shutil.which("npx") is None or shutil.which("npm") is None:
        return None
    command = ["npm", "install", *_OPTIONS, "--prefix", str(directory), *packages]
    npm = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        is_done = npm.wait(timeout) == 0
    except subprocess.TimeoutExpired:
        is_done = False
    finally:
        if npm.poll() is None:
            os.killpg(npm.pid, signal.SIGKILL)
            npm.wait()
    return directory / "node_modules" / ".bin" if is_done else None


def bundled_servers() -> dict[str, dict[str, Any]]:
    """Return the bundled servers in the shape of `mcpServers`."""
    names = json.loads(DEFINITIONS.read_text("utf-8"))
    return {name: {"command": sys.executable, "args": ["-m", "riglm.demo.server", name]} for name in names}


def npm_servers(programs: Path, directory: Path) -> dict[str, dict[str, Any]]:
    """Return the bundled servers with those from npm in the place of the ones that have the same tools.

    `directory` gets the files and the knowledge graph with which the bundled ones begin; ROOT is its path there.
    """
    definitions = json.loads(DEFINITIONS.read_text("utf-8"))
    for row in definitions["filesystem"]["tables"]["files"]["rows"]:
        file = directory / row["path"].removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(row["content"], "utf-8")
    entities = definitions["memory"]["tables"]["entities"]["rows"]
    graph = directory / "memory.jsonl"
    graph.write_text("".join(json.dumps({"type": "entity", **row}) + "\n" for row in entities), "utf-8")
    root = directory / ROOT.removeprefix("/")
    return {
        **bundled_servers(),
        "everything": {"command": str(programs / "mcp-server-everything")},
        "filesystem": {"command": str(programs / "mcp-server-filesystem"), "args": [str(root)]},
        "memory": {"command": str(programs / "mcp-server-memory"), "env": {"MEMORY_FILE_PATH": str(graph)}},
    }
