"""Statistics and tools: what is summed up of lists, calls, tokens and time."""

import time

import pytest

from riglm.application.control.statistics import get_series, get_session_clusters, get_summary
from riglm.application.control.tools import get_cooccurrences, get_tool, list_tools
from riglm.domain.control import NotFoundError
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ErrorKind
from riglm.domain.schemas.control_api import HitRate, RecordTotals, ToolCount, ToolPairCount
from tests.records import a_session, an_exposure, an_invocation
from tests.unit.application.control.parts import list_tools_now, running_proxy


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


@pytest.fixture
def now(monkeypatch):
    """The time of day, as a list of one number."""
    at = [100_000.0]
    monkeypatch.setattr(time, "time", lambda: at[0])
    return at


async def tools_by_name(proxy, *, unused_only=False):
    page = await list_tools(proxy, unused_only=unused_only, limit=1000)
    return {each.tool: each for each in page.items}


async def test_tools_that_are_listed_now_are_known_though_no_list_is_recorded(store, proxy):
    session = a_session()
    store.record_many([session, an_exposure(session, "shown", hidden=("hidden",)), an_invocation(session, "used")])
    list_tools_now(proxy, new="github", shown="github", used="github")
    found = await tools_by_name(proxy, unused_only=True)
    assert {name: each.upstream for name, each in found.items()} == {"hidden": "", "new": "github", "shown": "github"}
    assert all(each.last_used is None and each.median_ms is None for each in found.values())


async def test_tools_come_most_used_first_then_by_name_page_by_page(store, proxy):
    session = a_session()
    store.record_many([session])
    for name, uses in {"b": 2, "a": 2, "z": 5, "m": 1}.items():
        store.record_many([an_invocation(session, name) for _ in range(uses)])
    list_tools_now(proxy, never="x", ever="x")
    found, cursor = [], None
    for _ in range(3):
        page = await list_tools(proxy, limit=2, cursor=cursor)
        found += [each.tool for each in page.items]
        cursor = page.next_cursor
    assert (found, cursor) == (["z", "a", "b", "m", "ever", "never"], None)


async def test_one_tool_is_told_over_all_servers_with_its_company(store, proxy, now):
    one, two = a_session(), a_session()
    store.record_many([one, two, an_invocation(one, "read", upstream="old"), an_invocation(one, "write")])
    store.record_many([an_invocation(two, "read", upstream="new") for _ in range(3)])
    store.record_many([an_invocation(two, "write"), an_invocation(two, "list")])
    now[0] = 2000.0
    found = await get_tool(proxy, "read")
    assert (found.upstream, found.invocations, found.sessions) == ("new", 4, 2)
    assert [(each.tool, each.count) for each in found.cooccurrences] == [("write", 2), ("list", 1)]
    assert sum(each.calls for each in found.series.buckets) == 4


async def test_a_tool_that_is_only_listed_is_told_and_one_that_is_not_is_not_there(store, proxy):
    list_tools_now(proxy, new="github")
    assert (await get_tool(proxy, "new")).model_dump(include={"tool", "upstream", "uses"}) == {
        "tool": "new",
        "upstream": "github",
        "uses": 0,
    }
    with pytest.raises(NotFoundError, match="there is no tool of this name"):
        await get_tool(proxy, "other")


async def test_the_summary_counts_uses_by_how_their_tools_were_found(store, proxy):
    session = a_session()
    shown = an_exposure(session, "list", hidden=("read",), mode="enforce", tokens_shown=100, tokens_hidden=900)
    found = [DiscoveryMethod.LISTED] * 3 + [DiscoveryMethod.SEARCHED] + [DiscoveryMethod.NAMED]
    calls = [an_invocation(session, "read", found=each) for each in found]
    lost = an_invocation(session, "nothing", found=DiscoveryMethod.NAMED, success=False, error_kind=ErrorKind.PROTOCOL)
    own = an_invocation(session, "call_tool", upstream=OWN_UPSTREAM)
    store.record_many([session, a_session(ended_at=2000.0), shown, *calls, lost, own])
    summary = await get_summary(proxy)
    assert (summary.calls, summary.failures) == (6, 1)
    assert summary.hit_rate == HitRate(hits=3, missed=2, found_by_search=1)
    assert summary.hit_rate.rate == 0.6
    assert (summary.sessions.active, summary.sessions.total) == (1, 2)
    assert (summary.mode, summary.verdict.code) == ("enforce", "empty")
    assert (summary.tools.known, summary.tools.used, summary.tools.never_used) == (2, 1, 1)
    assert (summary.price.mode, summary.price.sessions) == ("enforce", 1)
    assert (summary.price.of_no_proxy, summary.price.of_host_search) == (None, None)  # of one session
    assert summary.records == RecordTotals(
        accepted=10, stored=5, queued=2, spooled=2, dropped=1, reasons={"full": 1, "refused": 0}
    )


async def test_time_is_cut_into_buckets_that_end_now(store, proxy, now):
    session = a_session(started_at=now[0] - 86_400.0)
    times = [now[0] - 86_399.0, now[0] - 1.0]
    store.record_many([session, *(an_invocation(session, "read", timestamp=at) for at in times)])
    store.record_many([an_exposure(session, "a", hidden=("b",), timestamp=times[1])])
    first, second = (await get_series(proxy, buckets=2)).buckets
    assert (first.at, first.seconds, first.calls, first.mean_shown) == (now[0] - 86_400.0, 43_200.0, 1, None)
    assert (second.at, second.calls, second.mean_shown, second.mean_available) == (now[0] - 43_200.0, 1, 1.0, 2.0)


@pytest.mark.parametrize(("since", "until"), [(10.0, 10.0), (11.0, 10.0), (None, 1e300), (200_000.0, None)])
async def test_a_time_without_length_has_no_buckets(proxy, now, since, until):
    assert (await get_series(proxy, since=since, until=until, buckets=2)).buckets == ()


async def test_what_is_used_together_is_computed_again_for_those_who_look(store, proxy, now):
    session = a_session()
    store.record_many([an_invocation(session, "read"), an_invocation(session, "write")])
    found = await get_cooccurrences(proxy, 30)
    assert found.tools == ("read", "write")
    assert [(each.a, each.b, each.count, each.mean_distance) for each in found.pairs] == [("read", "write", 1, 1.0)]
    store.record_many([an_invocation(session, "list")])
    assert len((await get_cooccurrences(proxy, 31)).pairs) == 1
    now[0] += 30.0
    with store.maintenance_lease():
        assert len((await get_cooccurrences(proxy, 32)).pairs) == 1
    assert len((await get_cooccurrences(proxy, 33)).pairs) == 3


async def test_sessions_are_clustered_by_their_successful_calls(store, proxy):
    assert (await get_session_clusters(proxy)).clusters == ()
    for servers in (("git",), ("git",), ("mail", "git"), ("git",)):
        session = a_session()
        calls = [(f"{server}__{tool}", server) for server in servers for tool in ("a", "b")]
        store.record_many([session, *(an_invocation(session, tool, upstream=server) for tool, server in calls)])
    store.record_many([an_invocation(session, "mail__send", upstream="mail", success=False)])
    proxy.queries._answers.clear()
    found = await get_session_clusters(proxy, 1)
    assert (found.sessions, found.total, len(found.clusters)) == (4, 2, 1)
    [cluster] = found.clusters
    assert (cluster.sessions, set(cluster.distinctive[:2])) == (3, {"git__a", "git__b"})
    assert cluster.tools == (ToolCount(tool="git__a", sessions=3), ToolCount(tool="git__b", sessions=3))
    assert cluster.transitions[0] == ToolPairCount(first="git__a", second="git__b", sessions=3)
