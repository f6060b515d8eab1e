"""What people see of a riglm at work and do to it: a real proxy with clients, a real predictor, a real store."""

import math
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from riglm.application.control.overrides import delete_override, get_override
from riglm.application.control.sessions import get_prediction, get_session, list_sessions
from riglm.application.control.statistics import get_series, get_summary, get_tool, list_tools
from riglm.domain.errors import NotFoundError
from riglm.domain.session import uuid7
from riglm.lifespan import create_control
from tests.integration.live import FILE, TOOLS, visibility
from tests.waiting import wait_until_async

SOME = ("tool05", "tool06", "tool07")
STORED = FILE.replace("{{kind: memory}}", "{{kind: sqlite, path: riglm.db}}")


@asynccontextmanager
async def looked_at(folder, text=FILE):
    """A riglm with its control service."""
    async with visibility(folder, text) as stage:
        running = create_control(stage.container, stage.proxy._ports)
        try:
            yield stage, running
        finally:
            running.close()


async def until(ask, holds):
    """What `ask` gives once it holds; records are stored a moment after they were made."""

    async def held():
        found = await ask()
        return found if holds(found) else None

    return await wait_until_async(held)


async def at_work(stage):
    """A client that used some tools again and again, and its list."""
    client = await stage.client()
    await client.listed()
    stage.container.prediction()._loading.begin()
    await wait_until_async(lambda: stage.container.prediction().state is not None)
    for name in SOME * 10:
        assert await client.call(name) == name
    models = stage.container.prediction().state.scope_models
    models.relearn()
    await models.up_to_date("")
    return client


def of_servers(names):
    return [name for name in names if name in TOOLS]


async def test_the_next_list_is_the_one_that_was_told_and_contributions_add_up(tmp_path):
    async with looked_at(tmp_path) as (stage, running):
        client = await at_work(stage)
        [session] = (await list_sessions(running)).items
        first, second = await get_prediction(running, session.id), await get_prediction(running, session.id)
        assert [each.tool for each in first.tools] == [each.tool for each in second.tools]
        assert first.shown == second.shown
        assert of_servers(await client.listed()) == list(first.shown)
        scored = [each for each in first.tools if each.score is not None]
        assert len(scored) == len(TOOLS) - 1
        assert {each.tool for each in scored[:3]} == set(SOME)
        for each in scored:
            assert sum(each.contributions.values()) == pytest.approx(math.log(each.score / (1 - each.score)))
        [denied] = [each for each in first.tools if each.visibility == "denied"]
        assert (denied.tool, denied.why) == ("tool39", "denied: filtering.denylist names it")


@pytest.mark.parametrize("text", [FILE, STORED], ids=["memory", "sqlite"])
async def test_what_clients_do_is_seen_and_stays_when_they_are_gone(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    async with looked_at(tmp_path, text) as (stage, running):
        assert (await list_sessions(running)).items == ()
        client = await at_work(stage)
        [session] = (await list_sessions(running, active_only=True)).items
        assert (session.client.name, session.invocations, session.active) == ("c", 30, True)
        detail = await until(lambda: get_session(running, session.id), lambda found: len(found.calls) == 30)
        assert [call.tool for call in detail.calls[:3]] == list(SOME)
        assert (detail.lists, detail.shown[0].hidden) == (1, 0)
        summary = await until(lambda: get_summary(running), lambda found: found.calls == 30)
        assert (summary.hit_rate.hits, summary.hit_rate.rate, summary.failures) == (0, None, 0)  # nothing was hidden
        assert (summary.tools.known, summary.tools.used) == (len(TOOLS), 3)
        records = summary.records
        assert records.accepted == records.stored + records.queued + records.spooled + records.dropped
        tools = (await until(lambda: list_tools(running), lambda found: found.items[0].uses)).items
        assert [(each.tool, each.uses) for each in tools[:3]] == [(name, 10) for name in SOME]
        assert len(tools) == len(TOOLS)
        assert sum(bucket.calls for bucket in (await get_series(running, buckets=10)).buckets) == 30
        assert (await get_tool(running, "tool05")).uses == 10
        await client.close()
        stage.clients.clear()
        gone = await until(lambda: get_session(running, session.id), lambda found: not found.active)
        assert gone.ended_at is not None
        past = await get_prediction(running, session.id)
        assert (past.live, past.has_context) == (False, False)
        assert set(SOME) <= set(past.shown)
        assert {each.tool for each in past.tools} == set(TOOLS[:-1])
        for operation in (get_session, get_prediction, get_override, delete_override):
            with pytest.raises(NotFoundError):
                await operation(running, uuid7())


async def test_a_session_s_state_is_what_it_was_before_anybody_looked(tmp_path):
    async with looked_at(tmp_path) as (stage, running):
        await at_work(stage)
        [session] = stage.container.sessions().live()
        state = stage.container.filtering().state(session)
        before = replace(state), state.calls.copy(), state.used_in_turn.copy()
        await get_prediction(running, session.id)
        after = replace(state), state.calls, state.used_in_turn
        assert after[1:] == before[1:]
        for name in ("turn", "view", "plan", "shown", "has", "changes", "last_at", "context"):
            assert getattr(after[0], name) is getattr(before[0], name), name
