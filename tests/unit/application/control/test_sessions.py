"""Sessions of this process and of the store, page by page."""

import pytest

from riglm.application.control.sessions import list_sessions
from riglm.domain.errors import NotFoundError
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


@pytest.mark.parametrize(
    "cursor", ["", "é", "bnVsbA", "WzFd", "W1tdLCAiIl0", "W05hTiwgIjAiXQ", "e30", "WzEuMCwgNV0", "\x00", "A" * 9999]
)
async def test_a_cursor_that_is_none_of_ours_leads_nowhere(proxy, cursor):
    with pytest.raises(NotFoundError, match="the cursor leads nowhere"):
        await list_sessions(proxy, active_only=False, limit=10, cursor=cursor)
