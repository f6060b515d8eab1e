"""A server of the MCP SDK that marks the tools that its clients used before."""

import asyncio
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from riglm import ToolSelector
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.application.prediction.warm_sets import RECHECK_SECONDS
from riglm.defer.mcp import LearnedHints
from tests.waiting import wait_until_async

USED = ("export_ledger", "rotate_keys")
NAMES = [*(f"do_{number}" for number in range(40)), *USED]
HINT = "anthropic/alwaysLoad"


def a_server() -> MCPServer:
    server = MCPServer("big")

    def add(name: str) -> None:
        def tool(about: str) -> str:
            if about == "fail":
                raise ValueError("it failed")
            return f"{name} is done"

        server.add_tool(tool, name=name, description=f"Do {name}.", meta={"own": 1} if name == USED[0] else None)

    for name in NAMES:
        add(name)
    return server


async def list_tools(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """List ten tools for each page."""
    start = int(params.cursor) if params and params.cursor else 0
    page = [types.Tool(name=name, input_schema={"type": "object"}) for name in NAMES[start : start + 10]]
    return types.ListToolsResult(tools=page, next_cursor=str(start + 10) if start + 10 < len(NAMES) else None)


def a_paged_server() -> Server:
    """A low-level server."""

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(text=f"{params.name} is done")])

    return Server("big", on_list_tools=list_tools, on_call_tool=call_tool)


async def listed(client: Client) -> list[types.Tool]:
    found, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("make", [a_server, a_paged_server])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_tools_that_clients_used_are_marked_and_all_are_listed_in_their_order(mode, make):
    server = make()
    async with Client(server, mode=mode) as client:
        tools = await listed(client)
    async with ToolSelector(tools, max_tools=6, embedder="static") as selector:
        server.middleware.append(LearnedHints(selector))
        for _ in range(4):
            async with Client(server, mode=mode) as client:
                await listed(client)
                for name in USED:
                    result = await client.call_tool(name, {"about": "it"})
                    assert result.content[0].text == f"{name} is done"
        await asyncio.sleep(RECHECK_SECONDS)
        found: list[types.Tool] = []

        async def has_settled() -> bool:
            """Return True if two lists are the same: pages before and after an update are marked differently."""
            nonlocal found
            async with Client(server, mode=mode) as client:
                before, found = found, await listed(client)
            return before == found

        await wait_until_async(has_settled)
    assert [tool.name for tool in found] == NAMES
    marked = [tool.name for tool in found if (tool.meta or {}).get(HINT)]
    assert set(USED) <= set(marked)
    assert len(marked) <= 6
    if make is a_server:
        assert next(tool for tool in found if tool.name == USED[0]).meta["own"] == 1


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_failures_reach_the_client(mode):
    server = a_server()
    async with ToolSelector(await server.list_tools(), embedder="static") as selector:
        server.middleware.append(LearnedHints(selector))
        async with Client(server, mode=mode) as client:
            assert (await client.call_tool(USED[0], {"about": "fail"})).is_error
            assert (await client.call_tool("no_such_tool", {})).is_error
            nameless = types.CallToolRequest(params=types.CallToolRequestParams.model_construct(name=None))
            with pytest.raises(MCPError):
                await client.session.send_request(nameless, types.CallToolResult)


async def test_a_call_that_asks_for_input_is_recorded_once(tmp_path):
    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> Any:
        if params.request_state is None:
            return types.InputRequiredResult(request_state="waiting")
        return types.CallToolResult(content=[types.TextContent(text="done")])

    store = tmp_path / "calls.db"
    server = Server("big", on_list_tools=list_tools, on_call_tool=call_tool)
    async with ToolSelector([{"name": USED[0]}], store=store, embedder="static") as selector:
        server.middleware.append(LearnedHints(selector))
        async with Client(server) as client:
            assert (await client.call_tool(USED[0], {})).content[0].text == "done"
    with SqlAnalytics(f"sqlite:///{store}") as analytics:
        assert [len(session.calls) for session in analytics.list_training_sessions(10)] == [1]
