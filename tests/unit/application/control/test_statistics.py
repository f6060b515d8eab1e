"""Statistics and tools: what is summed up of lists, calls, tokens and time."""

import time
from types import SimpleNamespace

import pytest

from riglm.application.control.statistics import (
    get_embedder,
    get_health,
    get_readiness,
    get_series,
    get_session_clusters,
    list_tools,
)
from riglm.domain.errors import ControlUnavailableError
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ErrorKind
from riglm.domain.schemas.control_api import Bucket, Readiness, ToolCount, ToolPairCount
from riglm.domain.upstream import UpstreamHealth, UpstreamSpec
from tests.records import a_session, an_exposure, an_invocation
from tests.unit.application.control.parts import COUNTS, SIGNAL, list_tools_now, running_proxy


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


async def test_time_is_cut_into_buckets_that_end_now(store, proxy, now):
    session = a_session(started_at=now[0] - 86_400.0)
    times = [now[0] - 86_399.0, now[0] - 1.0]
    store.record_many([session, *(an_invocation(session, "read", timestamp=at) for at in times)])
    store.record_many([an_exposure(session, "a", hidden=("b",), timestamp=times[1])])
    first, second = (await get_series(proxy, buckets=2)).buckets
    assert (first.at, first.seconds, first.calls, first.mean_shown) == (now[0] - 86_400.0, 43_200.0, 1, None)
    assert (second.at, second.calls, second.mean_shown, second.mean_available) == (now[0] - 43_200.0, 1, 1.0, 2.0)


async def test_calls_of_a_bucket_are_counted_by_how_their_tools_were_found(store, proxy):
    session = a_session()
    lost = {"success": False, "error_kind": ErrorKind.PROTOCOL}
    store.record_many(
        [
            session,
            an_invocation(session, "read", found=DiscoveryMethod.LISTED),
            an_invocation(session, "write", found=DiscoveryMethod.SEARCHED, success=False, error_kind=ErrorKind.TOOL),
            an_invocation(session, "nothing", found=DiscoveryMethod.NAMED, **lost),
            an_invocation(session, "call_tool", upstream=OWN_UPSTREAM, found=DiscoveryMethod.LISTED),
        ]
    )
    span = {"at": 0.0, "seconds": 9e9}
    [found] = (await get_series(proxy, since=0.0, until=9e9, buckets=1)).buckets
    assert found == Bucket(**span, calls=3, failures=2, listed=1, searched=1, named=1)
    [of_tool] = (await get_series(proxy, since=0.0, until=9e9, buckets=1, tool="write")).buckets
    assert of_tool == Bucket(**span, calls=1, failures=1, searched=1)


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


# --- the health of riglm, by its parts ---


SPECS = [UpstreamSpec(name="one", kind="stdio"), UpstreamSpec(name="two", kind="http")]


@pytest.fixture
async def two():
    """A proxy in front of two servers."""
    upstreams = [UpstreamHealth(name="one", state="open", since=5.0), UpstreamHealth(name="two")]
    with running_proxy(specs=SPECS, upstreams=lambda: upstreams) as (_, proxy):
        yield proxy


async def test_every_configured_server_is_reported_with_what_is_known(two):
    list_tools_now(two, read="one", write="one")
    found = await get_health(two)
    assert (found.status, found.live, found.ready, found.version) == ("ok", True, True, "1.2")
    assert [(each.name, each.transport, each.state, each.since, each.tools) for each in found.upstreams] == [
        ("one", "stdio", "open", 5.0, 2),
        ("two", "http", "idle", None, None),
    ]
    assert (found.store.kind, found.store.state, found.store.queued, found.store.spooled) == ("sqlite", "ok", 2, 2)


async def test_riglm_is_ready_until_no_server_can_be_reached(two):
    broken = UpstreamHealth(name="one", state="broken", last_error="it ended")
    two.upstreams = lambda: [broken]
    found = await get_health(two)
    assert (found.status, found.ready, found.upstreams[0].last_error) == ("degraded", True, "it ended")
    assert await get_readiness(two) == Readiness(ready=True)
    two.upstreams = lambda: [broken, UpstreamHealth(name="two", state="broken")]
    assert await get_readiness(two) == Readiness(ready=False, reasons=("no server can be reached: one, two",))


@pytest.mark.parametrize("is_recording", [True, False])
async def test_an_unavailable_store_is_reported_by_records_and_by_queries_and_keeps_no_client_away(is_recording):
    with running_proxy(recorder=SimpleNamespace(counts=lambda: COUNTS, is_failing=is_recording)) as (store, proxy):
        if not is_recording:
            store.is_unavailable = True
            with pytest.raises(ControlUnavailableError):
                await proxy.store.ask(lambda store: store.count_sessions())
        found = await get_health(proxy)
        assert (found.status, found.ready, found.store.state) == ("degraded", True, "unavailable")


async def test_asking_for_the_embedder_loads_it_and_asking_for_the_health_does_not(two):
    loaded, status = [], {**SIGNAL["embeddings"], "status": "unavailable"}
    signal = {**SIGNAL, "embeddings": status}
    two.prediction = SimpleNamespace(status=lambda: signal, begin=lambda: loaded.append(1))
    assert (await get_health(two)).status == "degraded"
    assert not loaded
    assert await get_embedder(two) == signal
    assert loaded
