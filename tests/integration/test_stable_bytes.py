"""Lists are the same bytes until something really changed: real processes, clients of both eras, lessons learned."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import pytest
from benchmarks.cache import CHECKOUT

from tests.interaction.clients.raw import RawClient
from tests.interaction.clients.streamable import StreamableLink
from tests.interaction.stage import Stage
from tests.preloaded import riglm_command
from tests.waiting import WAIT_SECONDS

UPSTREAM = ("--", sys.executable, "-m", "benchmarks.load.upstream", "stdio", "60")
HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
WITHIN = WAIT_SECONDS
LESSON = ("datadog_delete_order", "mysql_list_user", "gcp_search_branch", "grafana_search_document")
CONTEXT = "prepare the monthly zebra review"


SIZED = {"RIGLM_FILTERING__COVERAGE": "0.95", "RIGLM_FILTERING__COLD_START_LIMIT": "20"}
"""Lists go by size, so that each context may change them."""


class Wire:
    """A client that keeps the bytes of what it is told; `async with` starts a riglm of its own."""

    def __init__(self, data: Path, version: str, **settings: str) -> None:
        self.version = version
        self.changes = 0
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RIGLM_")}
        own = {"RIGLM_DATA_DIR": str(data), "PYTHONPATH": str(CHECKOUT), "RIGLM_EMBEDDER__PROVIDER": "static", **SIZED}
        self._environment = {**kept, **own, **{f"RIGLM_{name}": value for name, value in settings.items()}}
        self._number = 0

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *riglm_command("run", *UPSTREAM),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=1 << 24,
            env=self._environment,
        )
        if self.version == HANDSHAKE:
            client = {"name": "bytes", "version": "1"}
            await self.ask("initialize", {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": client})
            self._say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    async def __aexit__(self, *_: object) -> None:
        self._input.close()
        async with asyncio.timeout(WITHIN):
            while await self._output.readline():
                pass
            assert await self._process.wait() == 0

    async def ask(self, method: str, params: dict[str, object] | None = None) -> bytes:
        """The answer to a request, as it came."""
        self._number += 1
        params = dict(params or {})
        if self.version == MODERN:
            params["_meta"] = {VERSION_KEY: MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
        self._say({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        async with asyncio.timeout(WITHIN):
            while line := await self._output.readline():
                message = json.loads(line)
                if message.get("id") == self._number:
                    return line
                self.changes += message.get("method") == "notifications/tools/list_changed"
        raise AssertionError("riglm ended without an answer")

    async def heard(self) -> None:
        """Wait until it was announced that the list is another one."""
        async with asyncio.timeout(WITHIN):
            while not self.changes:
                message = json.loads(await self._output.readline())
                self.changes += message.get("method") == "notifications/tools/list_changed"

    async def listed(self) -> bytes:
        """The whole result of a list, byte by byte."""
        line = await self.ask("tools/list")
        return line[line.index(b'"result":') + len(b'"result":') : line.rindex(b"}")]

    async def call(self, name: str, **arguments: object) -> None:
        """Call a tool that must not fail."""
        await self.run(name, arguments)

    async def run(self, name: str, arguments: dict[str, object]) -> None:
        """Call a tool that must not fail, with any arguments."""
        answer = json.loads(await self.ask("tools/call", {"name": name, "arguments": arguments}))
        assert not answer["result"].get("isError"), answer

    def _say(self, message: dict[str, object]) -> None:
        self._input.write(json.dumps(message).encode() + b"\n")

    @property
    def _input(self) -> asyncio.StreamWriter:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _output(self) -> asyncio.StreamReader:
        assert self._process.stdout is not None
        return self._process.stdout


def names(listed: bytes) -> list[str]:
    return [tool["name"] for tool in json.loads(listed)["tools"]]


async def teach(data: Path, tools: Sequence[str] = LESSON) -> None:
    for _ in range(3):
        async with Wire(data, HANDSHAKE) as client:
            await client.listed()
            await client.call("set_context", context=CONTEXT)
            for tool in tools * 2:
                await client.call(tool, text="it")


@pytest.fixture(scope="module")
def training_queue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data in which the lesson is learned."""
    data = tmp_path_factory.mktemp("lessons")
    asyncio.run(teach(data))
    return data


@pytest.fixture
def example(training_queue: Path, tmp_path: Path) -> Path:
    """Such data of a test's own."""
    return shutil.copytree(training_queue, tmp_path / "data")


@pytest.fixture
def taught_stage(training_queue: Path, tmp_path: Path) -> Iterator[Stage]:
    """A stage on which the lesson is learned."""
    shutil.copytree(training_queue, tmp_path / "data")
    made = Stage(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_a_hundred_lists_of_a_session_are_the_same_bytes(example, version):
    async with Wire(example, version) as client:
        lists = {await client.listed() for _ in range(50)}
        for tool in LESSON:
            await client.call(tool, text="it")
        lists |= {await client.listed() for _ in range(50)}
        assert len(lists) == 1
        assert client.changes == 0


async def test_lists_are_the_same_bytes_over_restarts_in_any_order_of_clients(example):
    told: dict[str, set[bytes]] = {HANDSHAKE: set(), MODERN: set()}
    for version in (MODERN, HANDSHAKE, HANDSHAKE, MODERN, MODERN, HANDSHAKE):
        async with Wire(example, version) as client:
            told[version].add(await client.listed())
    assert {version: len(lists) for version, lists in told.items()} == {HANDSHAKE: 1, MODERN: 1}
    assert set(LESSON) <= set(names(*told[MODERN]))
    assert len(names(*told[MODERN])) < 30


async def test_what_a_session_does_never_changes_a_list_of_the_modern_era(example):
    async with Wire(example, MODERN) as client:
        first = await client.listed()
        await client.call("set_context", context="something else altogether")
        await client.call("search_available_tools", query="delete a customer")
        await client.run("call_tool", {"name": "mysql_list_user", "arguments": {"text": "it"}})
        await client.call(LESSON[0], text="it")
        assert await client.listed() == first
        assert client.changes == 0
    async with Wire(example, MODERN) as client:
        assert await client.listed() == first


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_a_shadow_leaves_the_upstream_s_own_bytes_whatever_was_learned(example, tmp_path, version):
    async with Wire(tmp_path / "off", version, FILTERING__ENABLED="false") as client:
        own = await client.listed()
    for _ in range(2):
        async with Wire(example, version, FILTERING__MODE="shadow") as client:
            lists = {await client.listed() for _ in range(20)}
            await client.call(LESSON[0], text="it")
            assert lists | {await client.listed()} == {own}
            assert client.changes == 0


async def test_a_client_s_context_changes_no_other_client_s_list(taught_stage: Stage):
    env = {"RIGLM_FILTERING__MODE": "enforce", "PYTHONPATH": str(CHECKOUT), **SIZED}
    url = taught_stage.serve(*UPSTREAM, env=env) + "/mcp"
    links = [(era, StreamableLink(url, listen=False)) for era in ("modern", "handshake", "handshake", "modern")]
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(RawClient(link, era)) for era, link in links]
        first = []
        for client in clients:
            await client.greet()
            first.append(await result_of(client))
        assert first[0] == first[3]
        assert first[1] == first[2]
        await clients[1].call("set_context", b'{"context":"prepare the monthly zebra review"}')
        assert await result_of(clients[1]) != first[1]
        others = [await result_of(clients[number]) for number in (3, 2, 0)]
        assert others == [first[3], first[2], first[0]]


async def result_of(client: RawClient) -> bytes:
    """The tools of a list, byte by byte."""
    raw = (await client.request("tools/list")).result
    return raw[raw.index(b'"tools":[') : raw.rindex(b"]") + 1]
