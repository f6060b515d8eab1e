"""What riglm learned in earlier runs is there in the next: real processes, and a real client."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from mcp import Client

from tests.integration.topical import LESSONS, TOOLS, riglm

PARAPHRASES = {
    "preparing this month's zebra review": ("maps_elevation", "shell_kill_process"),
    "the auditors visit us, get everything ready": ("music_set_volume", "weather_pollen_count"),
}


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
async def test_tools_that_no_description_could_suggest_come_first_after_a_restart_and_no_context_is_in_clear(
    tmp_path, mode
):
    await teach(tmp_path / "taught", mode, LESSONS)
    for arm in ("taught", "control"):
        async with riglm(tmp_path / arm, mode) as client:
            for context, tools in PARAPHRASES.items():
                found = set(tools) & set(await best_for(client, context))
                assert found == (set(tools) if arm == "taught" else set()), (arm, context)
    stored = b"".join(path.read_bytes() for path in (tmp_path / "taught").rglob("*") if path.is_file())
    assert b"maps_elevation" in stored
    assert b"zebra" not in stored
    assert b"auditors" not in stored


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


async def test_what_a_burst_of_calls_and_a_mark_teach_of_contexts_is_stored_before_a_clean_end(tmp_path):
    contexts = [f"matter {number} of the zebra" for number in range(5)]
    async with riglm(tmp_path, "legacy") as client:
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
