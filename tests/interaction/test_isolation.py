"""Twelve sessions of two callers in front of the same stdio servers: nothing of one caller reaches the other."""

import json
import signal
import sqlite3
from contextlib import AsyncExitStack

import pytest

from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient
from tests.interaction.clients.streamable import StreamableLink
from tests.interaction.stage import Stage
from tests.interaction.test_change_notifications import listening

CALLERS = ("alice", "bob")
SESSIONS = 6
"""Sessions of each caller; with `max_processes: 4`, two of them share a process."""

OWN_TOOL = {"alice": "alpha__nonce", "bob": "alpha__whoami"}
ARGUMENTS = {"alice": {"nonce": "n"}, "bob": {}}
CHANGED = "notifications/tools/list_changed"
LOGGED = "notifications/message"
UPDATED = "notifications/resources/updated"


def token(who: str) -> str:
    return f"the-token-of-{who}"


@pytest.fixture
def origin(stage: Stage) -> str:
    servers = {
        name: {**stage.entry("stdio", "--name", name), "sharing": "auto", "max_processes": 4}
        for name in ("alpha", "beta")
    }
    file = stage.folder / "riglm.json"
    file.write_text(json.dumps({"mcpServers": servers, "downstream": {"tokens": {who: token(who) for who in CALLERS}}}))
    return stage.serve("--config", str(file), env={"RIGLM_LOGGING__LEVEL": "debug", "RIGLM_FILTERING__MODE": "enforce"})


async def clients(origin: str, era: str, stack: AsyncExitStack) -> dict[str, list[RawClient]]:
    """All sessions of both callers, opened in turn."""
    found: dict[str, list[RawClient]] = {who: [] for who in CALLERS}
    for _ in range(SESSIONS):
        for who in CALLERS:
            link = StreamableLink(origin + "/mcp", {"authorization": f"Bearer {token(who)}"}, listen=era == HANDSHAKE)
            client = await stack.enter_async_context(RawClient(link, era))
            await client.greet()
            await client.request("tools/list")
            found[who].append(client)
    return found


async def used(client: RawClient, who: str) -> int:
    """Use a session in every way that could reach another; the process that served it."""
    context = f"{who} prepares the yearly {who} review"
    assert "result" in (await client.call("set_context", {"context": context})).parts
    assert "result" in (await client.call(OWN_TOOL[who], ARGUMENTS[who])).parts
    logging = {"level": "error", "data": who}
    await client.call("alpha__log", logging, meta={"io.modelcontextprotocol/logLevel": "debug"})
    counted = (await client.call("alpha__counter")).decoded()
    return int(counted["structuredContent"]["pid"])


async def names(client: RawClient) -> set[str]:
    return {tool["name"] for tool in (await client.request("tools/list")).decoded()["tools"]}


def logged(client: RawClient) -> set[str]:
    return {note.decoded("params")["data"] for note in client.notifications if note.method == LOGGED}


async def test_handshake_sessions_of_two_callers_share_nothing(stage: Stage, origin: str):
    async with AsyncExitStack() as stack:
        sessions = await clients(origin, HANDSHAKE, stack)
        pids = {who: {await used(client, who) for client in each} for who, each in sessions.items()}
        assert not pids["alice"] & pids["bob"]
        assert all(len(each) < SESSIONS for each in pids.values())
        for client in sessions["alice"]:
            await client.call("alpha__change", {"what": "tools"})
        for client in sessions["alice"]:
            await client.wait_for(CHANGED)
        for who, each in sessions.items():
            for client in each:
                assert "alpha__extra" not in await names(client) or who == "alice"
                assert logged(client) <= {who}
        assert any(["alpha__extra" in await names(client) for client in sessions["alice"]])
        assert not [note for client in sessions["bob"] for note in client.notifications if note.method == CHANGED]
    nothing_is_recorded_in_common(stage, origin)


async def test_modern_callers_share_a_process_and_nothing_else(stage: Stage, origin: str):
    async with AsyncExitStack() as stack:
        sessions = await clients(origin, MODERN, stack)
        uris = {"alice": "note://alpha/one", "bob": "note://alpha/two"}
        for who, each in sessions.items():
            await listening(each[0], {"resourceSubscriptions": [uris[who]]}, who)
            for client in each:
                await used(client, who)
                assert logged(client) == {who}
        for who in CALLERS:
            await sessions[who][-1].call("alpha__change", {"what": uris[who]})
        for who, each in sessions.items():
            await each[0].wait_for(UPDATED)
            updated = [note.decoded("params")["uri"] for note in each[0].notifications if note.method == UPDATED]
            assert updated == [uris[who]]
    nothing_is_recorded_in_common(stage, origin)


def nothing_is_recorded_in_common(stage: Stage, origin: str) -> None:
    """Neither training examples nor log lines."""
    stage.served_by(origin).notify(signal.SIGTERM)
    stage.served_by(origin).wait()
    with sqlite3.connect(stage.folder / "data" / "riglm.db") as store:
        examples = store.execute("SELECT scope, tool FROM learned_pair").fetchall()
    lines = map(json.loads, (stage.folder / "riglm.stderr").read_text().splitlines())
    calls = [(line["session"], line["tool"]) for line in lines if line["event"] == "tool call ended"]
    for recorded in (examples, calls):
        owners = {tool: {owner for owner, each in recorded if each == tool} for tool in OWN_TOOL.values()}
        assert all(owners.values())
        assert not set.intersection(*owners.values())
