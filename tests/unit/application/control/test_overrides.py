"""Overrides: checked, stored, and in force when the answer is given."""

import time

import pytest

from riglm.application.control.overrides import delete_override, get_override, list_overrides, put_override
from riglm.application.filtering.active_rules import Overrides
from riglm.application.worker import Worker
from riglm.domain.errors import ConflictError, ControlUnavailableError, NotFoundError
from riglm.domain.schemas.control_api import OverrideCreate
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import uuid7
from tests.records import a_session, an_invocation, an_override
from tests.stores.memory import InMemoryAnalytics
from tests.unit.application.control.parts import list_tools_now, open_session, running_proxy

NOW = 1000.0


@pytest.fixture
async def parts(monkeypatch):
    """A store, a proxy, and the notifications of clients."""
    monkeypatch.setattr(time, "time", lambda: NOW)
    notified = []
    with Worker() as worker, running_proxy() as (store, proxy):
        proxy.overrides = Overrides(worker, lambda: store, clock=lambda: NOW)
        proxy.overrides.when_changed(lambda: notified.append(1))
        yield store, proxy, notified


@pytest.fixture
def store(parts):
    return parts[0]


@pytest.fixture
def proxy(parts):
    return parts[1]


async def put(proxy, tool="read", kind="pin", **wanted):
    return await put_override(proxy, OverrideCreate.model_validate({"kind": kind, "tool": tool, **wanted}))


def in_force(proxy):
    return [each.tool for each in proxy.overrides.in_force()]


async def test_a_tool_that_no_server_is_known_to_have_is_refused_once_tools_are_known(store, proxy):
    await put(proxy, "before_any_list")
    list_tools_now(proxy, read="files")
    await put(proxy, "read")
    session = a_session()
    store.record_many([session, an_invocation(session, tool="gone")])
    await put(proxy, "gone")
    with pytest.raises(NotFoundError, match="no server has a tool 'raed' — fix: use a name from GET /tools"):
        await put(proxy, "raed")


async def test_an_override_that_is_over_or_would_not_apply_is_refused(store, proxy):
    with pytest.raises(ConflictError, match="expires_at lies in the past"):
        await put(proxy, expires_at=NOW)
    with pytest.raises(ConflictError, match="expires_in is too short"):
        await put(proxy, expires_in=1e-15)
    proxy.filtering.rules = FilteringSettings(enabled=False)
    with pytest.raises(ConflictError, match="filtering is off, so no override applies"):
        await put(proxy)
    assert list(InMemoryAnalytics.list_overrides(store)) == []


async def test_an_override_of_a_meta_tool_is_refused_unless_a_server_has_a_tool_of_that_name(proxy):
    with pytest.raises(ConflictError, match=r"set filtering\.meta_tools\.call_tool"):
        await put(proxy, "call_tool")
    list_tools_now(proxy, call_tool="phone")
    await put(proxy, "call_tool", "exclude")
    assert in_force(proxy) == ["call_tool"]


async def test_a_session_of_an_override_must_be_known(store, proxy):
    here, recorded = open_session(proxy), a_session()
    store.record_many([recorded])
    for session in (here, recorded):
        assert (await put(proxy, scope="session", key=str(session.id).upper())).key == str(session.id)
    with pytest.raises(NotFoundError, match="there is no session"):
        await put(proxy, scope="session", key=str(uuid7()))
    assert (await put(proxy, scope="principal", key="")).key == ""
    assert (await put(proxy, scope="principal", key="a" * 32)).key == "a" * 32


async def test_overrides_are_listed_the_latest_first_without_those_that_are_over(store, proxy):
    expiry = {2: {"expires_at": NOW - 1.0}}
    made = [an_override(created_at=10.0 + number, **expiry.get(number, {})) for number in range(5)]
    for each in made:
        store.put_override(each)
    found, cursor = [], None
    for _ in range(2):
        page = await list_overrides(proxy, limit=2, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
    assert (found, cursor) == ([made[4], made[3], made[1], made[0]], None)
    assert await get_override(proxy, made[0].id) == made[0]
    for missing in (made[2].id, uuid7()):
        for operation in (get_override, delete_override):
            with pytest.raises(NotFoundError):
                await operation(proxy, missing)


async def test_while_the_store_is_unavailable_nothing_is_half_done(store, proxy):
    kept = await put(proxy, "kept")
    store.is_unavailable = True
    with pytest.raises(ControlUnavailableError, match="the store is shut"):
        await delete_override(proxy, kept.id)
    assert in_force(proxy) == ["kept"]
    store.is_unavailable = False
    assert [each.tool for each in (await list_overrides(proxy)).items] == ["kept"]
