"""What riglm learned in earlier runs is there in the next: real processes, a real client, the real model."""

import asyncio
import contextlib
import json
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
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
PARAPHRASES = {
    "preparing this month's zebra review": ("maps_elevation", "shell_kill_process"),
    "the auditors visit us, get everything ready": ("music_set_volume", "weather_pollen_count"),
}


@asynccontextmanager
async def riglm(data: Path, mode: str, **settings: str) -> AsyncIterator[Client]:
    """A client in front of a riglm of its own with this data directory."""
    env = {
        "PATH": os.environ["PATH"],
        "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"],
        "RIGLM_DATA_DIR": str(data),
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


async def best_for(client: Client, context: str) -> list[str]:
    """The tools that riglm sends or lists for a context, those that it sends first."""
    answer = await client.call_tool("set_context", {"context": context})
    said = json.loads(answer.content[0].text)
    listed = [tool.name for tool in (await client.list_tools()).tools]
    return [*(tool["name"] for tool in said["tools"]), *listed]


async def teach(data: Path, mode: str, training_queue: dict[str, Sequence[str]]) -> None:
    for _ in range(3):
        async with riglm(data, mode) as client:
            for context, tools in training_queue.items():
                await best_for(client, context)
                for tool in tools:
                    answer = await client.call_tool(tool, {"about": "it"})
                    assert not answer.is_error


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_tools_that_no_description_could_suggest_come_first_after_a_restart(tmp_path, mode):
    await teach(tmp_path / "taught", mode, LESSONS)
    for arm in ("taught", "control"):
        async with riglm(tmp_path / arm, mode) as client:
            for context, tools in PARAPHRASES.items():
                found = set(tools) & set(await best_for(client, context))
                assert found == (set(tools) if arm == "taught" else set()), (arm, context)


async def test_misses_that_were_searched_are_at_hand_for_that_context_in_the_next_session(tmp_path):
    context = "write to the customers whose parcel is late"
    async with riglm(tmp_path, "legacy") as client:
        await best_for(client, context)
        for query in ("SMS text message", "block a number", "verify a phone", "list the messages"):
            answer = await client.call_tool("search_available_tools", {"query": query})
            said = json.loads(answer.content[0].text)
            name = [*(tool["name"] for tool in said["tools"]), *said.get("already_available", ())][0]
            assert name.startswith("sms_")
            await client.call_tool(name, {"about": "the delay"})
    async with riglm(tmp_path, "legacy") as client:
        names = await best_for(client, context)
    assert {"sms_send_text_message", "sms_block_number", "sms_verify_phone", "sms_list_messages"} <= set(names)
    assert len(names) < 30


async def test_nothing_about_a_context_is_stored_in_clear(tmp_path):
    await teach(tmp_path, "legacy", LESSONS)
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"maps_elevation" in stored
    assert b"zebra" not in stored
    assert b"auditors" not in stored


async def test_what_a_burst_of_calls_and_a_mark_teach_of_contexts_is_stored_before_a_clean_end(tmp_path):
    contexts = [f"matter {number} of the zebra" for number in range(5)]
    async with riglm(tmp_path, "legacy", RIGLM_EMBEDDER__PROVIDER="static") as client:
        for context in contexts:
            await best_for(client, context)
            answers = await asyncio.gather(*(client.call_tool(name, {"about": "it"}) for name in TOOLS))
            assert not any(answer.is_error for answer in answers)
        await best_for(client, "something else")
        answer = await client.call_tool("mark_tool", {"name": TOOLS[0], "relevant": True})
        assert not answer.is_error
    with contextlib.closing(sqlite3.connect(tmp_path / "riglm.db")) as store:
        [(pairs,)] = store.execute("select count(*) from learned_pair")
    assert pairs == len(contexts) * len(TOOLS) + 1
