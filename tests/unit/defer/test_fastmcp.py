"""A FastMCP server that marks the tools that its clients used before."""

import asyncio

import pytest
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError

from riglm import ToolSelector
from riglm.application.prediction.warm_sets import RECHECK_SECONDS
from riglm.defer.fastmcp import LearnedHints

USED = ("export_ledger", "rotate_keys")
HINT = "anthropic/alwaysLoad"


def a_server() -> FastMCP:
    server = FastMCP("big")

    def add(name: str) -> None:
        def tool(about: str) -> str:
            if about == "fail":
                raise ValueError("it failed")
            return f"{name} is done"

        server.tool(tool, name=name, description=f"Do {name}.", meta={"own": 1} if name == USED[0] else None)

    for name in (*(f"do_{number}" for number in range(40)), *USED):
        add(name)
    return server


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_tools_that_clients_used_are_marked_and_all_are_listed_in_their_order(mode):
    server = a_server()
    tools = await server.list_tools()
    async with ToolSelector(tools, max_tools=6, embedder="static") as selector:
        server.add_middleware(LearnedHints(selector))
        for _ in range(4):
            async with Client(server, mode=mode) as client:
                await client.list_tools()
                for name in USED:
                    result = await client.call_tool(name, {"about": "it"})
                    assert result.content[0].text == f"{name} is done"
        await asyncio.sleep(RECHECK_SECONDS)
        async with Client(server, mode=mode) as client:
            listed = await client.list_tools()
    assert [tool.name for tool in listed] == [tool.name for tool in tools]
    marked = [tool.name for tool in listed if (tool.meta or {}).get(HINT)]
    assert set(USED) <= set(marked)
    assert len(marked) <= 6
    assert next(tool for tool in listed if tool.name == USED[0]).meta["own"] == 1


async def test_a_failure_of_a_tool_reaches_the_client():
    server = a_server()
    async with ToolSelector(await server.list_tools(), embedder="static") as selector:
        server.add_middleware(LearnedHints(selector))
        with pytest.raises(ToolError):
            await server.call_tool(USED[0], {"about": "fail"})
        async with Client(server) as client:
            with pytest.raises(ToolError):
                await client.call_tool(USED[0], {"about": "fail"})
