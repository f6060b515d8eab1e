"""The first question that riglm's retrieval was tried on, through a running riglm with the real model."""

import json
import os
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.preloaded import riglm_command

SERVER = Path(__file__).with_name("listing_server.py")
QUESTION = "I need to search for information online"
SCHEMA = {"type": "object", "properties": {}, "description": "long enough to pay " * 100}
TOOLS = {
    "browser_navigate": "Navigate to a URL",
    "add-tasks": "Add new tasks to the task list",
    "get-sum": "Returns the sum of two numbers",
    "echo": "Echoes back the input string",
    **{
        f"{verb}_{thing}": f"{verb.capitalize()} a {thing}"
        for verb in ("rotate", "paint", "weigh", "fold", "melt")
        for thing in ("picture", "coin", "wheel", "lamp", "brick", "kettle", "ladder", "carpet")
    },
    "tavily_search": "Search the web for current information on any topic. Returns snippets and source URLs.",
}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_need_to_search_online_finds_the_web_search_first(tmp_path, mode):
    listed = tmp_path / "tools.json"
    tools = [{"name": name, "description": said, "inputSchema": SCHEMA} for name, said in TOOLS.items()]
    listed.write_text(json.dumps(tools), "utf-8")
    env = {
        "PATH": os.environ["PATH"],
        "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"],
        "RIGLM_DATA_DIR": str(tmp_path),
    }
    program, *words = riglm_command("run", "--", sys.executable, str(SERVER), str(listed))
    command = StdioServerParameters(command=program, args=words, env=env)
    async with Client(stdio_client(command), mode=mode, read_timeout_seconds=30) as client:
        await client.list_tools()
        answer = await client.call_tool("search_available_tools", {"query": QUESTION})
        said = json.loads(answer.content[0].text)
        found = [*(tool["name"] for tool in said["tools"]), *said.get("already_available", ())]
        assert found[0] == "tavily_search"
