"""First tool lists of several servers in processes of their own, which start when the test lets them."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.subject import RIGLM, isolated

from riglm.adapters.analytics.sql import SqlAnalytics
from tests.started import die_with_the_starter

pytestmark = pytest.mark.usefixtures("riglm_is_forked")
SERVER = Path(__file__).with_name("gated_server.py")
LIMIT_SECONDS = 60.0
TOOLS_CHANGED = "notifications/tools/list_changed"
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "an-agent", "version": "1"}}


class Client:
    """A client on the pipes of a riglm that it started."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._id = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self.told: list[str] = []

    def send(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request; its id."""
        self._id += 1
        self._write({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params or {}})
        return self._id

    async def answer(self, number: int) -> dict[str, Any]:
        """The answer to a request."""
        while number not in self._answers:
            await self._take()
        return self._answers.pop(number)

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result of a request."""
        return (await self.answer(self.send(method, params)))["result"]

    async def open(self) -> None:
        """Shake hands."""
        await self.ask("initialize", INITIALIZE)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def names(self) -> list[str]:
        """The tools of servers in the list."""
        return tools_of(await self.ask("tools/list"))

    async def until_told(self) -> None:
        """Wait for a notification."""
        while not self.told:
            await self._take()

    async def _take(self) -> None:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "riglm has ended"
        message = json.loads(line)
        if "method" in message:
            self.told.append(message["method"])
        else:
            self._answers[message["id"]] = message

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")


class Stage:
    """Servers, their gates, and the configuration of a riglm in front of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "riglm.log"
        self.servers: dict[str, dict[str, Any]] = {}
        self.settings: dict[str, Any] = {"filtering": {"surface": "full"}}

    def server(self, name: str, *tools: str) -> None:
        """Configure a server that has these tools, or let it have them from its next start on."""
        file = self.directory / f"{name}.json"
        file.write_text(json.dumps(tools))
        self.servers[name] = {"command": sys.executable, "args": [str(SERVER), str(file), str(self._gate(name))]}

    def open_gate(self, *names: str) -> None:
        """Let servers answer."""
        for name in names:
            self._gate(name).touch()

    def close_gates(self) -> None:
        """Let servers hang from their next start on."""
        for name in self.servers:
            self._gate(name).unlink(missing_ok=True)

    def configure(self) -> Path:
        """Write the configuration."""
        file = self.directory / "riglm.yaml"
        file.write_text(json.dumps({"mcpServers": self.servers, "embedder": {"provider": "static"}, **self.settings}))
        return file

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A client that has started riglm and shaken hands; riglm has ended afterwards."""
        command = [*RIGLM, "run", "--config", str(self.configure())]
        with self.log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=isolated(self.directory),
                preexec_fn=die_with_the_starter,
            )
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                client = Client(process)
                await client.open()
                yield client
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()

    async def begin(self, *servers: str) -> None:
        """A first start, with all servers."""
        self.open_gate(*servers)
        async with self.client() as client:
            await client.ask("tools/list")
        self.close_gates()

    def logged(self, text: str) -> list[str]:
        """The lines of riglm's log that contain a text."""
        return [line for line in self.log.read_text().splitlines() if text in line]

    def _gate(self, name: str) -> Path:
        return self.directory / f"{name}.gate"


def tools_of(result: dict[str, Any]) -> list[str]:
    """The tools of servers in a list."""
    return [tool["name"] for tool in result["tools"] if "__" in tool["name"]]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Two servers with closed gates."""
    made = Stage(tmp_path)
    made.server("fast", "read")
    made.server("slow", "write")
    return made


async def test_the_first_list_of_an_unknown_client_waits_for_all_servers(stage: Stage):
    stage.open_gate("fast")
    async with stage.client() as client:
        listing = client.send("tools/list")
        await asyncio.sleep(0)
        stage.open_gate("slow")
        result = (await client.answer(listing))["result"]
    assert tools_of(result) == ["fast__read", "slow__write"]
    assert "_meta" not in result
    assert stage.logged("incomplete") == []


async def test_a_later_start_lists_the_stored_tools_and_corrects_them_once(stage: Stage):
    await stage.begin("fast", "slow")
    stage.server("slow", "write", "append")
    async with stage.client() as client:
        assert await client.names() == ["fast__read", "slow__write"], "no server has answered"
        called = client.send("tools/call", {"name": "slow__write", "arguments": {}})
        stage.open_gate("fast", "slow")
        await client.until_told()
        assert await client.names() == ["fast__read", "slow__write", "slow__append"]
        answer = await client.answer(called)
        assert answer["result"]["content"][0]["text"] == "write", "the call has waited for its server"
        await client.names()
        assert client.told == [TOOLS_CHANGED]
    stage.close_gates()
    async with stage.client() as client:
        assert await client.names() == ["fast__read", "slow__write", "slow__append"]


async def test_a_server_that_hangs_is_named_once_and_the_others_are_listed(stage: Stage):
    stage.settings = {"timeouts": {"list": 1.0}}
    stage.open_gate("fast")
    async with stage.client() as client:
        for _ in range(2):
            result = await client.ask("tools/list")
            assert [tool["name"] for tool in result["tools"]] == ["fast__read", "search_available_tools"]
            assert result["_meta"] == {"riglm/missing": ["slow"]}
    (line,) = stage.logged("incomplete")
    assert json.loads(line)["missing"] == ["slow"]
    with SqlAnalytics(f"sqlite:///{stage.directory / 'riglm.db'}") as store:
        (summary,) = store.list_sessions()
        assert store.list_exposures(summary.session.id) == []


async def test_the_stored_tools_of_a_server_that_ends_at_its_start_are_withdrawn(stage: Stage):
    await stage.begin("fast", "slow")
    file = stage.directory / "slow.json"
    file.unlink()
    async with stage.client() as client:
        assert await client.names() == ["fast__read", "slow__write"]
        stage.open_gate("fast", "slow")
        await client.until_told()
        assert await client.names() == ["fast__read"]
        assert client.told == [TOOLS_CHANGED]
    assert stage.logged("left out a server")
    assert all('"slow"' in line for line in stage.logged("left out a server"))


async def test_a_stored_tool_that_is_denied_stays_denied(stage: Stage):
    await stage.begin("fast", "slow")
    stage.settings["filtering"] = {"surface": "full", "denylist": ["slow__*"]}
    async with stage.client() as client:
        assert await client.names() == ["fast__read"]
        answer = await client.answer(client.send("tools/call", {"name": "slow__write", "arguments": {}}))
        assert answer["error"]["message"] == "Unknown tool: slow__write"
