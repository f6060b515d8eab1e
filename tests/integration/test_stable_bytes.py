"""Lists are the same bytes until something really changed: real processes, clients of both eras, lessons learned."""

import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from benchmarks.cache import CHECKOUT

from tests.integration.wire_client import HANDSHAKE, LESSON, MODERN, SIZED, UPSTREAM, Wire, names
from tests.interaction.clients.raw import RawClient
from tests.interaction.clients.streamable import StreamableLink
from tests.interaction.stage import Stage


@pytest.fixture
def taught_stage(training_queue: Path, tmp_path: Path) -> Iterator[Stage]:
    """A stage on which the lesson is learned."""
    shutil.copytree(training_queue, tmp_path / "data")
    made = Stage(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_all_lists_of_a_session_are_the_same_bytes(example, version):
    async with Wire(example, version) as client:
        lists = {await client.listed() for _ in range(10)}
        for tool in LESSON:
            await client.call(tool, text="it")
        lists |= {await client.listed() for _ in range(10)}
        assert len(lists) == 1
        assert client.changes == 0


async def test_lists_are_the_same_bytes_over_restarts_in_any_order_of_clients(example):
    told: dict[str, set[bytes]] = {HANDSHAKE: set(), MODERN: set()}
    for version in (MODERN, HANDSHAKE, HANDSHAKE, MODERN):
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
            lists = {await client.listed() for _ in range(5)}
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
