"""The store is looked after while a client works through riglm: no call is lost, and what is forgotten stays so."""

import asyncio
import json
import time
from typing import Any

import pytest

from riglm.adapters.analytics.sql import SqlAnalytics
from tests.contracts.maintenance_contract import a_used_session
from tests.interaction.clients.raw import HANDSHAKE
from tests.interaction.route import RIGLM, Route
from tests.interaction.stage import Stage
from tests.records import calls_by_tool
from tests.waiting import wait_until_async

ROUTE = Route("stdio", "stdio", RIGLM, HANDSHAKE)
OLD_SESSIONS = 60


@pytest.fixture(params=["sqlite", "postgresql"])
def stored(request: pytest.FixtureRequest, stage: Stage) -> str:
    """The URL of the store that every process on the stage uses."""
    if request.param == "sqlite":
        return f"sqlite:///{stage.folder / 'data' / 'riglm.db'}"
    url: str = request.getfixturevalue("postgres_url")
    stage.settings["RIGLM_STORAGE__URL"] = url
    return url


async def command(stage: Stage, *words: str) -> Any:
    """What a command of riglm says as JSON."""
    child = await asyncio.create_subprocess_exec(
        *stage.riglm("db", *words, "--json"),
        env=stage.env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, said = await child.communicate()
    assert child.returncode == 0, said.decode()
    return json.loads(out)


async def test_calls_go_through_and_are_recorded_while_the_store_is_purged(stage: Stage, stored: str) -> None:
    with SqlAnalytics(stored) as store:
        long_ago = time.time() - 400 * 86_400.0
        old = (a_used_session(long_ago, ended=long_ago + 60)[1] for _ in range(OLD_SESSIONS))
        store.record_many([record for records in old for record in records])
    async with stage.client(ROUTE) as client:
        await client.request("tools/list")
        purging = asyncio.create_task(command(stage, "purge", "--older-than", "100d"))
        calls = 0
        while not purging.done():
            assert (await client.call("nonce", {"nonce": str(calls)})).words == str(calls)
            calls += 1
        assert purging.result()["removed"]["sessions"] == OLD_SESSIONS
        await until_stored(stored, calls)
    with SqlAnalytics(stored) as store:
        [kept] = store.list_sessions()
        assert [call.sequence_number for call in store.list_invocations(kept.session.id)] == list(range(1, calls + 1))


async def test_a_session_that_is_forgotten_while_it_goes_on_leaves_nothing(stage: Stage, stored: str) -> None:
    async with stage.client(ROUTE) as client:
        await client.request("tools/list")
        await client.call("nonce", {"nonce": "1"})
        await until_stored(stored, 1)
        forgotten = await command(stage, "forget", "--client", "raw", "--yes")
        assert forgotten["removed"]["sessions"] == 1
        for _ in range(5):
            assert (await client.call("nonce", {"nonce": "2"})).words == "2"
    with SqlAnalytics(stored) as store:
        assert store.list_sessions() == []
        assert not store.list_known_tools()
    async with stage.client(ROUTE) as client:
        await client.request("tools/list")
        await client.call("nonce", {"nonce": "3"})
        await until_stored(stored, 1)
    with SqlAnalytics(stored) as store:
        [session] = store.list_sessions()
        assert session.invocations == 1


async def until_stored(url: str, calls: int) -> None:
    """Wait until so many calls are stored: a riglm that ends on a busy machine leaves them to its next start."""
    with SqlAnalytics(url) as store:
        await wait_until_async(lambda: calls_by_tool(store).total() >= calls)
