"""Clients that keep the bytes of lists, and data in which a lesson is learned."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from benchmarks.cache import CHECKOUT

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
