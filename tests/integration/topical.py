"""Clients in front of the topical server, and lessons that nothing in its tools suggests."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.integration.topical_server import TOPICS
from tests.preloaded import riglm_command

SERVER = Path(__file__).with_name("topical_server.py")


TOOLS = [f"{topic}_{action.replace(' ', '_')}" for topic, actions in TOPICS.items() for action in actions]


LESSONS = {  # nothing that the tools say of themselves leads from the context to the tools
    "prepare the monthly zebra review": ("maps_elevation", "shell_kill_process"),
    "get ready for the visit of the auditors": ("music_set_volume", "weather_pollen_count"),
}


@asynccontextmanager
async def riglm(data: Path, mode: str, **settings: str) -> AsyncIterator[Client]:
    """A client in front of a riglm of its own with this data directory."""
    env = {
        "PATH": os.environ["PATH"],
        "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"],
        "RIGLM_DATA_DIR": str(data),
        "RIGLM_EMBEDDER__PROVIDER": "static",
        "RIGLM_FILTERING__COLD_START_LIMIT": "8",
        "RIGLM_FILTERING__META_TOOLS__MARK_TOOL": "true",
        **settings,
    }
    server = [sys.executable, str(SERVER)]
    command, *arguments = riglm_command("run", "--", *server)
    command = StdioServerParameters(command=command, args=arguments, env=env)
    async with Client(stdio_client(command), mode=mode, read_timeout_seconds=30) as client:
        await client.list_tools()
        yield client
