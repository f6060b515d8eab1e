"""Sessions of this process and of the store, page by page."""

import pytest

from riglm.application.control.sessions import get_session, list_sessions
from riglm.domain.control import NotFoundError
from riglm.domain.session import uuid7
from tests.records import a_session, an_exposure, an_invocation
from tests.unit.application.control.parts import open_session, running_proxy


@pytest.fixture
async def parts():
    with running_proxy() as made:
        yield made


@pytest.fixture
def store(parts):
    return parts[0]


@pytest.fixture
def proxy(parts):
    return parts[1]


async def ids(proxy, *, limit=100, active_only=False, meanwhile=lambda: None):
    """The ids of all sessions, page by page."""
    found, cursor = [], None
    while True:
        page = await list_sessions(proxy, active_only=active_only, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        found += [each.id for each in page.items]
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor
        meanwhile()


async def test_sessions_at_work_stand_among_those_that_are_recorded(store, proxy):
    recorded = [a_session(started_at=at, ended_at=at + 5) for at in (100.0, 300.0)]
    store.record_many(list(recorded))
    here = open_session(proxy, 200.0)
    page = await list_sessions(proxy, active_only=False, limit=10, cursor=None)
    assert [(each.id, each.active) for each in page.items] == [
        (recorded[1].id, False),
        (here.id, True),
        (recorded[0].id, False),
    ]
    assert page.next_cursor is None


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
async def test_each_session_is_given_once_while_new_ones_begin(store, proxy, limit):
    recorded = [a_session(started_at=1000.0 + number // 2) for number in range(8)]
    store.record_many(list(recorded))
    here = [open_session(proxy, 1000.0 + number) for number in range(3)]
    store.record_many(here[:2])

    def meanwhile():
        open_session(proxy, 5000.0)
        store.record_many([a_session(started_at=5000.0)])

    expected = sorted([*recorded, *here], key=lambda each: (each.started_at, each.id), reverse=True)
    assert await ids(proxy, limit=limit, meanwhile=meanwhile) == [each.id for each in expected]


async def test_a_session_at_work_is_told_as_it_is_and_counted_as_far_as_it_is_recorded(store, proxy):
    here = open_session(proxy, 100.0)
    calls = [an_invocation(here, "read"), an_invocation(here, "read", success=False)]
    store.record_many([here, *calls, an_exposure(here, "read"), an_exposure(here, "write")])
    here.next_sequence_number()
    [entry] = (await list_sessions(proxy, active_only=True, limit=10, cursor=None)).items
    assert (entry.invocations, entry.failures, entry.lists, entry.list_changes) == (3, 1, 2, 1)
    assert (entry.active, entry.ended_at) == (True, None)


async def test_only_sessions_without_an_end_are_given_on_request(store, proxy):
    ended, elsewhere = a_session(started_at=1.0, ended_at=2.0), a_session(started_at=3.0)
    store.record_many([ended, elsewhere])
    here = open_session(proxy, 4.0)
    assert await ids(proxy, active_only=True) == [here.id, elsewhere.id]


async def test_one_session_has_its_latest_calls_and_lists(store, proxy):
    session = a_session(ended_at=2000.0)
    calls = [an_invocation(session, f"tool{number}") for number in range(205)]
    shown = [an_exposure(session, "a", hidden=("b", "c"), timestamp=1000.0 + number) for number in range(55)]
    store.record_many([session, *calls, *shown])
    found = await get_session(proxy, session.id)
    assert (found.id, found.invocations) == (session.id, 205)
    assert [each.sequence for each in found.calls] == list(range(6, 206))
    assert [each.at for each in found.shown] == [1000.0 + number for number in range(5, 55)]
    assert (found.shown[0].shown, found.shown[0].hidden) == (("a",), 2)


async def test_a_session_that_nobody_knows_is_not_there(proxy):
    with pytest.raises(NotFoundError, match="there is no session"):
        await get_session(proxy, uuid7())


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "é",
        "bnVsbA",
        "WzFd",
        "W1tdLCAiIl0",
        "W05hTiwgIjAiXQ",
        "e30",
        "WzEuMCwgNV0",
        "W251bGwsIG51bGxd",
        "\x00",
        "A" * 9999,
    ],
)
async def test_a_cursor_that_is_none_of_ours_leads_nowhere(proxy, cursor):
    with pytest.raises(NotFoundError, match="the cursor leads nowhere"):
        await list_sessions(proxy, active_only=False, limit=10, cursor=cursor)
