"""What is summed up: tools, zero hops, lists, tokens, time."""

import pytest

from riglm.application.control.statistics import Statistics
from riglm.application.control.thread_bridge import CachedQueries
from riglm.application.control.tool_use import ToolQueries, UsageHistory
from riglm.application.tracking.record_queue import RecordCounts
from riglm.domain.control import InvalidInputError, NotFoundError
from riglm.domain.exposure import SEARCH_SURFACE
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ErrorKind
from riglm.domain.schemas.control_api import HitRate, RecordTotals, ToolEntry
from tests.records import a_session, an_exposure, an_invocation
from tests.unit.application.control.office import an_office

COUNTS = RecordCounts(
    accepted=10, stored=5, queued=2, spooled=2, dropped=1, recovered=0, reasons={"full": 1, "refused": 0}
)


class Desk:
    """Statistics over an archive, and the tools that are listed now."""

    def __init__(self, office):
        self.archive = office.archive
        self.live = {}
        self.now = 100_000.0
        counting = CachedQueries(office.store)
        self.history = UsageHistory(counting, clock=lambda: self.now)
        self.use = ToolQueries(office.proxy, counting, self.history, lambda: self.live, clock=lambda: self.now)
        self.statistics = Statistics(counting, self.use, lambda: COUNTS)

    async def tools(self, *, unused_only=False, since=0.0):
        page = await self.use.entries(unused_only=unused_only, since=since, limit=1000, cursor=None)
        return {each.tool: each for each in page.items}


@pytest.fixture
async def desk():
    with an_office() as office:
        yield Desk(office)


async def test_a_tool_is_told_with_how_it_was_used(desk):
    session = a_session()
    calls = [an_invocation(session, "read", found=each, duration_ms=4.0) for each in DiscoveryMethod]
    calls.append(an_invocation(session, "read", success=False, error_kind=ErrorKind.TIMEOUT, duration_ms=9.0))
    desk.archive.record_many([session, *calls])
    assert await desk.tools() == {
        "read": ToolEntry(
            tool="read",
            upstream="github",
            invocations=4,
            uses=3,
            failures=1,
            sessions=1,
            listed=1,
            searched=1,
            named=2,
            median_ms=4.0,
            p95_ms=9.0,
            last_used=calls[-1].timestamp,
        )
    }


async def test_tools_that_are_listed_now_are_known_though_no_list_is_recorded(desk):
    session = a_session()
    desk.archive.record_many(
        [session, an_exposure(session, "shown", hidden=("hidden",)), an_invocation(session, "used")]
    )
    desk.live = {"new": "github", "shown": "github", "used": "github"}
    found = await desk.tools(unused_only=True)
    assert {name: each.upstream for name, each in found.items()} == {"hidden": "", "new": "github", "shown": "github"}
    assert all(each.last_used is None and each.median_ms is None for each in found.values())


async def test_a_name_that_only_clients_used_is_no_tool(desk):
    session = a_session()
    refused = {"success": False, "error_kind": ErrorKind.PROTOCOL, "found": DiscoveryMethod.NAMED}
    made_up = [an_invocation(session, f"made_up_{number}", **refused) for number in range(50)]
    failing = [an_invocation(session, name, **refused) for name in ("listed_then", "listed_now")]
    own = an_invocation(session, "search_available_tools", upstream=OWN_UPSTREAM, **refused)
    desk.archive.record_many([session, *made_up, *failing, own, an_exposure(session, "listed_then")])
    desk.live = {"listed_now": "github"}
    found = await desk.tools()
    assert {name: each.invocations for name, each in found.items()} == {"listed_then": 1, "listed_now": 1}
    tools = (await desk.statistics.summary(0.0)).tools
    assert (tools.known, tools.used, tools.never_used) == (2, 0, 2)
    with pytest.raises(NotFoundError):
        await desk.use.detail("made_up_1", since=0.0)


async def test_calls_that_riglm_refused_make_no_second_tool_and_count_for_none(desk):
    session = a_session()
    refused = {"upstream": "", "success": False, "error_kind": ErrorKind.PROTOCOL, "found": DiscoveryMethod.NAMED}
    names = ("ran", "only_refused", "listed_then", "made_up")
    calls = [an_invocation(session, name, **refused) for name in names]
    calls += [an_invocation(session, "ran", upstream="alpha"), an_invocation(session, "of_an_agent", upstream="")]
    desk.archive.record_many([session, *calls, an_exposure(session, "listed_then")])
    desk.live = {"ran": "alpha", "only_refused": "alpha"}
    page = await desk.use.entries(unused_only=False, since=0.0, limit=1000, cursor=None)
    assert [(each.tool, each.upstream, each.invocations, each.failures) for each in page.items] == [
        ("of_an_agent", "", 1, 0),
        ("ran", "alpha", 1, 0),
        ("listed_then", "", 0, 0),
        ("only_refused", "alpha", 0, 0),
    ]


async def test_tools_come_most_used_first_then_by_name_page_by_page(desk):
    session = a_session()
    desk.archive.record_many([session])
    for name, uses in {"b": 2, "a": 2, "z": 5, "m": 1}.items():
        desk.archive.record_many([an_invocation(session, name) for _ in range(uses)])
    desk.live = {"never": "x", "ever": "x"}
    found, cursor = [], None
    for _ in range(3):
        page = await desk.use.entries(unused_only=False, since=0.0, limit=2, cursor=cursor)
        found += [each.tool for each in page.items]
        cursor = page.next_cursor
    assert (found, cursor) == (["z", "a", "b", "m", "ever", "never"], None)


async def test_one_tool_is_told_over_all_servers_with_its_company(desk):
    one, two = a_session(), a_session()
    desk.archive.record_many([one, two, an_invocation(one, "read", upstream="old"), an_invocation(one, "write")])
    desk.archive.record_many([an_invocation(two, "read", upstream="new") for _ in range(3)])
    desk.archive.record_many([an_invocation(two, "write"), an_invocation(two, "list")])
    desk.now = 2000.0
    found = await desk.use.detail("read", since=0.0)
    assert (found.upstream, found.invocations, found.sessions) == ("new", 4, 2)
    assert [(each.tool, each.count) for each in found.cooccurrences] == [("write", 2), ("list", 1)]
    assert sum(each.calls for each in found.series.buckets) == 4


async def test_a_tool_that_is_only_listed_is_told_and_one_that_is_not_is_not_there(desk):
    desk.live = {"new": "github"}
    assert (await desk.use.detail("new", since=0.0)).model_dump(include={"tool", "upstream", "uses"}) == {
        "tool": "new",
        "upstream": "github",
        "uses": 0,
    }
    with pytest.raises(NotFoundError, match="there is no tool of this name"):
        await desk.use.detail("other", since=0.0)


async def test_the_summary_counts_uses_by_how_their_tools_were_found(desk):
    session = a_session()
    shown = an_exposure(session, "list", hidden=("read",), mode="enforce", tokens_shown=100, tokens_hidden=900)
    found = [DiscoveryMethod.LISTED] * 3 + [DiscoveryMethod.SEARCHED] + [DiscoveryMethod.NAMED]
    calls = [an_invocation(session, "read", found=each) for each in found]
    lost = an_invocation(session, "nothing", found=DiscoveryMethod.NAMED, success=False, error_kind=ErrorKind.PROTOCOL)
    own = an_invocation(session, "call_tool", upstream=OWN_UPSTREAM)
    desk.archive.record_many([session, a_session(ended_at=2000.0), shown, *calls, lost, own])
    summary = await desk.statistics.summary(0.0)
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


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
async def test_the_summary_is_of_the_mode_of_the_latest_list(desk, mode):
    session, other = a_session(), a_session()
    before = "shadow" if mode == "enforce" else "enforce"
    tokens = {"tokens_shown": 100, "tokens_hidden": 900, "tokens_own": 40}
    desk.archive.record_many(
        [
            session,
            other,
            an_exposure(other, "a", hidden=("b", "c", "d"), timestamp=0.5, mode=before, **tokens),
            an_exposure(session, "a", hidden=("b", "c", "d"), timestamp=1.0, mode=mode, **tokens),
            an_exposure(session, "b", hidden=("a", "c", "d"), timestamp=2.0, mode=mode, **tokens),
            an_exposure(session, "c", timestamp=3.0, mode=mode, surface=SEARCH_SURFACE, tokens_shown=7),
        ]
    )
    summary = await desk.statistics.summary(0.0)
    assert (summary.mode, summary.price.mode, summary.tokens.mode) == (mode, mode, mode)
    assert (summary.lists.shown, summary.lists.changes, summary.searches) == (2, 1, 1)
    assert (summary.lists.mean_shown, summary.lists.mean_available, summary.lists.reduction) == (1.0, 4.0, 0.75)
    assert (summary.tokens.shown, summary.tokens.hidden) == (200, 1800)
    assert (summary.tokens.meta_tools, summary.tokens.resent) == (80 + 7, 100)
    assert summary.tokens.net == 1800 - 87 - 100


async def test_without_records_there_are_no_rates(desk):
    summary = await desk.statistics.summary(0.0)
    assert (summary.hit_rate.rate, summary.lists.reduction, summary.lists.mean_shown) == (None, None, None)
    assert (summary.price.sessions, summary.price.of_no_proxy, summary.price.of_host_search) == (0, None, None)


async def test_time_is_cut_into_buckets_that_end_now(desk):
    session = a_session(started_at=desk.now - 86_400.0)
    times = [desk.now - 86_399.0, desk.now - 1.0]
    desk.archive.record_many([session, *(an_invocation(session, "read", timestamp=at) for at in times)])
    desk.archive.record_many([an_exposure(session, "a", hidden=("b",), timestamp=times[1])])
    first, second = await desk.history.buckets(since=None, until=None, count=2)
    assert (first.at, first.seconds, first.calls, first.mean_shown) == (desk.now - 86_400.0, 43_200.0, 1, None)
    assert (second.at, second.calls, second.mean_shown, second.mean_available) == (desk.now - 43_200.0, 1, 1.0, 2.0)


@pytest.mark.parametrize(
    ("since", "until"), [(10.0, 10.0), (11.0, 10.0), (None, 1e300), (float("nan"), 10.0), (200_000.0, None)]
)
async def test_a_time_without_length_has_no_buckets(desk, since, until):
    assert await desk.history.buckets(since=since, until=until, count=2) == ()


@pytest.mark.parametrize("buckets", [0, 1001])
async def test_there_are_neither_no_buckets_nor_too_many(desk, buckets):
    with pytest.raises(InvalidInputError) as refused:
        await desk.history.buckets(since=0.0, until=10.0, count=buckets)
    assert [fault.path for fault in refused.value.faults] == ["buckets"]


async def test_what_is_used_together_is_computed_anew_while_somebody_looks(desk):
    session = a_session()
    desk.archive.record_many([an_invocation(session, "read"), an_invocation(session, "write")])
    assert len((await desk.use.cooccurrence(30)).pairs) == 1
    desk.archive.record_many([an_invocation(session, "list")])
    assert len((await desk.use.cooccurrence(31)).pairs) == 1
    desk.now += 30.0
    with desk.archive.maintenance_lease():
        assert len((await desk.use.cooccurrence(32)).pairs) == 1
    desk.now += 30.0
    assert len((await desk.use.cooccurrence(33)).pairs) == 3


async def test_the_map_has_the_tools_that_are_used_together(desk):
    session = a_session()
    desk.archive.record_many([an_invocation(session, "read"), an_invocation(session, "write")])
    found = await desk.use.cooccurrence(30)
    assert found.tools == ("read", "write")
    assert [(each.a, each.b, each.count, each.mean_distance) for each in found.pairs] == [("read", "write", 1, 1.0)]
