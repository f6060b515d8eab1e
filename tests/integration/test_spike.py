"""The first question that riglm's retrieval was tried on, through a running riglm with the real model."""

import os
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

SERVER = Path(__file__).with_name("spike_server.py")
QUESTION = "I need to search for information online"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_need_to_search_online_finds_the_web_search_first(tmp_path, mode):
    env = {
        "PATH": os.environ["PATH"],
        "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"],
        "RIGLM_DATA_DIR": str(tmp_path),
        "RIGLM_FILTERING__PASSTHROUGH_BELOW__TOOLS": "0",  # five tools would be passed whole, and nothing offered
        "RIGLM_FILTERING__MIN_TOOLS": "1",
    }
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "riglm", "run", "--", sys.executable, str(SERVER)], env=env
    )
    async with Client(stdio_client(command), mode=mode, read_timeout_seconds=30) as client:
        await client.list_tools()
        for tool, argument in (("search_available_tools", "query"), ("set_context", "context")):
            answer = await client.call_tool(tool, {argument: QUESTION})
            assert answer.structured_content is not None
            assert answer.structured_content["tools"][0]["name"] == "tavily_search", tool
