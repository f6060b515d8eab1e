"""Clients and servers that others wrote."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import fastmcp
import mcp_types as types
import pytest
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.sse import sse_client

from tests import npm
from tests.interaction.clients.raw import HANDSHAKE, MODERN
from tests.interaction.clients.stdio import StdioLink
from tests.interaction.clients.streamable import StreamableLink
from tests.interaction.route import CORNERS, CROSSED, RIGLM, Route, routes
from tests.interaction.servers import catalog
from tests.interaction.stage import SDK_SERVER, Stage

MODES = {HANDSHAKE: "legacy", MODERN: "2026-07-28"}
INSPECTOR = "2.12.0"
DATED = "2026-07-28"


def command_of(stage: Stage, route: Route, *flags: str, sdk: bool = False) -> list[str]:
    """The command that a client on stdio starts."""
    if not sdk:
        link = stage.link(route, *flags)
        assert isinstance(link, StdioLink)
        return list(link.command)
    server = [sys.executable, str(SDK_SERVER)]
    return stage.riglm("run", *(["--", *server] if route.back == "stdio" else ["--url", sdk_url(stage)]))


def url_of(stage: Stage, route: Route, *flags: str, sdk: bool = False) -> str:
    """The URL that a client over HTTP opens."""
    if not sdk:
        link = stage.link(route, *flags)
        assert isinstance(link, StreamableLink)
        return link.url
    server = ["--", sys.executable, str(SDK_SERVER)] if route.back == "stdio" else ["--url", sdk_url(stage)]
    return stage.serve(*server) + "/mcp"


def sdk_url(stage: Stage) -> str:
    return stage.listening(sys.executable, str(SDK_SERVER), "--transport", "http") + "/mcp"


@asynccontextmanager
async def sdk_client(
    stage: Stage, route: Route, mode: str, *flags: str, sdk: bool = False, **options: Any
) -> AsyncIterator[Client]:
    """The SDK's client on this route."""
    with (stage.folder / "child.stderr").open("ab") as errors:
        if route.front == "stdio":
            command, *arguments = command_of(stage, route, *flags, sdk=sdk)
            parameters = StdioServerParameters(command=command, args=arguments, env=stage.env)
            server: Any = stdio_client(parameters, errlog=errors)
        else:
            server = url_of(stage, route, *flags, sdk=sdk)
        async with Client(server, mode=mode, read_timeout_seconds=20, **options) as client:
            yield client


@routes(CORNERS + CROSSED[-1:])
async def test_the_sdk_s_client_works_with_the_sdk_s_server(actors: Stage, route: Route):
    told: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append((done, total, message))

    async with sdk_client(actors, route, MODES[route.era], sdk=True) as client:
        assert client.protocol_version == (DATED if route.era == MODERN else "2025-11-25")
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "steps", "refuse"]
        result = await client.call_tool("add", {"a": 2, "b": 3})
        assert result.structured_content == {"result": 5}
        await client.call_tool("steps", {"count": 3}, progress_callback=progress)
        assert told == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
        assert (await client.call_tool("refuse", {})).is_error
        read = await client.read_resource("note://sdk/one")
        assert [getattr(content, "text", None) for content in read.contents] == ["a note of the sdk"]
        assert (await client.get_prompt("greet", {"name": "me"})).messages
        with pytest.raises(MCPError):
            await client.read_resource("note://nowhere")


@routes(CORNERS)
async def test_the_sdk_s_client_answers_questions(actors: Stage, route: Route):
    async def sample(_: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="sampled")
        return types.CreateMessageResult(role="assistant", content=content, model="none")

    async def elicit(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"n": 1})

    async def roots(_: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[])

    callbacks = {"sampling_callback": sample, "elicitation_callback": elicit, "list_roots_callback": roots}
    asked = {
        "sampling/createMessage": {"messages": [], "maxTokens": 5},
        "elicitation/create": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
        "roots/list": {},
    }
    async with sdk_client(actors, route, MODES[route.era], **callbacks) as client:
        for method, params in asked.items():
            result = await client.call_tool("ask", {"method": method, "params": params, "rounds": 2})
            assert len(result.content) == 2, method
            assert not result.is_error


@pytest.mark.parametrize(
    ("front", "eras", "version"),
    [
        ("stdio", "handshake", "2025-11-25"),
        ("stdio", "modern", DATED),
        ("stdio", "both", DATED),
        ("http", "handshake", "2025-11-25"),
    ],
)
async def test_a_client_of_both_eras_finds_the_server_s(stage: Stage, front: str, eras: str, version: str):
    route = Route(front, front, RIGLM, HANDSHAKE)
    async with sdk_client(stage, route, "auto", "--eras", eras) as client:
        assert client.protocol_version == version
        assert len((await client.list_tools()).tools) == len(catalog.NAMES)
        result = await client.call_tool("nonce", {"nonce": "found"})
        assert [getattr(content, "text", None) for content in result.content] == ["found"]


async def test_the_sdk_s_sse_client_works(actors: Stage):
    url = url_of(actors, Route("http", "http", RIGLM, HANDSHAKE)).removesuffix("/mcp") + "/sse"
    async with Client(sse_client(url), mode="legacy", read_timeout_seconds=20) as client:
        assert len((await client.list_tools()).tools) == len(catalog.NAMES)
        result = await client.call_tool("nonce", {"nonce": "sse"})
        assert [getattr(content, "text", None) for content in result.content] == ["sse"]


@routes(CORNERS)
async def test_fastmcp_s_client_works(actors: Stage, route: Route):
    transport: Any
    if route.front == "stdio":
        command, *arguments = command_of(actors, route)
        errors = actors.folder / "child.stderr"
        transport = StdioTransport(command, arguments, env=actors.env, keep_alive=False, log_file=errors)
    else:
        transport = StreamableHttpTransport(url_of(actors, route))
    async with fastmcp.Client(transport, mode=MODES[route.era], timeout=20) as client:
        assert [tool.name for tool in await client.list_tools()] == list(catalog.NAMES)
        result = await client.call_tool("nonce", {"nonce": "fast"})
        assert result.content[0].text == "fast"
        assert len(await client.list_prompts()) == 3
        read = await client.read_resource("note://scripted/one")
        assert read[0].text == "words of note://scripted/one"


class Inspector:
    """The Inspector's command line."""

    def __init__(self) -> None:
        package = npm.installed("@modelcontextprotocol/inspector", INSPECTOR)
        self._cli = package / "clients" / "cli" / "build" / "index.js"

    def run(self, config: Path, era: str, *arguments: str) -> dict[str, Any]:
        """What the Inspector prints for one method."""
        words = ["--config", str(config), "--server", "one", "--protocol-era", era, *arguments]
        ended = subprocess.run(
            [npm.node, self._cli, *words],
            env={**npm.environment(), "NO_PROXY": "*", "MCP_INSPECTOR_SECRET_STORE": "memory"},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, (ended.stdout[-1000:], ended.stderr[-2000:])
        found: dict[str, Any] = json.loads(ended.stdout)
        return found


@pytest.fixture(scope="session")
def inspector() -> Inspector:
    return Inspector()


@pytest.mark.timeout(300)
@routes(CORNERS)
def test_the_inspector_lists_and_calls(actors: Stage, route: Route, inspector: Inspector):
    if route.front == "stdio":
        command, *arguments = command_of(actors, route)
        own = {name: content for name, content in actors.env.items() if name not in os.environ}
        entry: dict[str, Any] = {"command": command, "args": arguments, "env": own}
    else:
        entry = {"type": "streamable-http", "url": url_of(actors, route)}
    config = actors.folder / f"inspector-{route}.json"
    config.write_text(json.dumps({"mcpServers": {"one": entry}}))
    era = {HANDSHAKE: "legacy", MODERN: "modern"}[route.era]
    listed = inspector.run(config, era, "--method", "tools/list")
    assert [tool["name"] for tool in listed["tools"]] == list(catalog.NAMES)
    called = inspector.run(config, era, "--tool-name", "nonce", "--tool-arg", "nonce=seen", "--method", "tools/call")
    assert called["content"] == [{"type": "text", "text": "seen"}]
    if route.front == "stdio":
        read = inspector.run(config, "auto", "--uri", "note://scripted/one", "--method", "resources/read")
        assert read["contents"][0]["text"] == "words of note://scripted/one"
