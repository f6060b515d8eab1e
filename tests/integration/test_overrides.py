"""What people decide about tools by hand reaches riglm while it runs, by the store that all processes share."""

import json
from pathlib import Path

import pytest

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.domain.policy import Override, OverrideKind, OverrideScope
from tests.integration.wire_client import HANDSHAKE, LESSON, MODERN, Wire, names
from tests.records import an_override
from tests.waiting import wait_until_async


def put(data: Path, *overrides: Override) -> None:
    """As another process does it."""
    with SqlAnalytics(f"sqlite:///{data / 'riglm.db'}") as store:
        for each in overrides:
            store.put_override(each)


async def test_a_client_is_told_while_riglm_runs_and_its_list_follows(example):
    async with Wire(example, HANDSHAKE) as client:
        before = names(await client.listed())
        assert set(LESSON) <= set(before)
        other = "bench_sleep" if "bench_sleep" not in before else "bench_echo"
        client.changes = 0
        gone = an_override(kind=OverrideKind.EXCLUDE, tool=LESSON[0], created_at=1000.0)
        put(example, gone, an_override(kind=OverrideKind.PIN, tool=LESSON[1], created_at=1001.0))
        await client.heard()
        assert set(names(await client.listed())) == set(before) - {LESSON[0]}
        client.changes = 0
        put(example, an_override(kind=OverrideKind.PIN, tool=other, created_at=1002.0))
        await client.heard()
        assert set(names(await client.listed())) == {*before, other} - {LESSON[0]}
        await client.call(LESSON[0], text="excluding is advice")


@pytest.mark.parametrize(
    ("surface", "version"), [("stable", HANDSHAKE), ("stable", MODERN), ("hints", HANDSHAKE), ("full", MODERN)]
)
async def test_what_was_decided_before_the_start_counts_from_the_first_list(example, version, surface):
    put(example, an_override(kind=OverrideKind.EXCLUDE, tool=LESSON[0]))
    async with Wire(example, version, FILTERING__SURFACE=surface) as client:
        listed = names(await client.listed())
        assert LESSON[0] not in listed
        assert set(LESSON[1:]) <= set(listed)


@pytest.mark.parametrize("surface", ["stable", "hints"])
async def test_an_override_for_one_session_of_the_modern_era_counts_for_it(example, surface):
    async with Wire(example, MODERN, FILTERING__SURFACE=surface) as client:
        listed = await client.listed()
        before = set(names(listed))
        assert LESSON[0] in before
        session = await the_session_at_work(example)
        put(example, an_override(kind=OverrideKind.EXCLUDE, tool=LESSON[0], scope=OverrideScope.SESSION, key=session))

        async def without_it():
            listed = await client.listed()
            return listed if LESSON[0] not in names(listed) else None

        listed = await wait_until_async(without_it)
        assert before - {LESSON[0]} <= set(names(listed)), "what was learned stays, and others may fill up"
        assert b'"cacheScope":"private"' in listed


async def the_session_at_work(data: Path) -> str:
    """The id of the one session that has no end yet, once it is recorded."""
    with SqlAnalytics(f"sqlite:///{data / 'riglm.db'}") as store:
        found = await wait_until_async(lambda: store.list_sessions(active_only=True))
    return str(found[0].session.id)


async def test_including_lifts_a_denial_while_riglm_runs(example):
    async with Wire(example, HANDSHAKE, FILTERING__DENYLIST=json.dumps([LESSON[0]])) as client:
        assert LESSON[0] not in names(await client.listed())
        refused = json.loads(await client.ask("tools/call", {"name": LESSON[0], "arguments": {"text": "it"}}))
        assert "Unknown tool" in refused["error"]["message"]
        client.changes = 0
        put(example, an_override(tool=LESSON[0]))
        await client.heard()
        assert LESSON[0] in names(await client.listed())
        await client.call(LESSON[0], text="it")
