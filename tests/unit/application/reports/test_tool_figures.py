"""The figures of recorded sessions by tool and over time."""

from riglm.application.reports.figures import read_figures
from riglm.application.reports.tool_figures import UsageCounts, tool_statistics, tool_totals, usage_over_time
from riglm.domain.exposure import SEARCH_SURFACE
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ErrorKind
from riglm.domain.list_plan import Prices
from riglm.domain.session import IdentificationMethod
from tests.records import a_session, an_exposure, an_invocation
from tests.stores.memory import InMemoryAnalytics


def figures(*records):
    with InMemoryAnalytics() as store:
        store.record_many(records)
        return read_figures(store, Prices())


def test_each_tool_of_an_upstream_is_counted_most_used_first():
    one, two = a_session(), a_session()
    durations = [float(each) for each in range(20, 0, -1)]
    calls = [an_invocation(one, "read", duration_ms=each) for each in durations]
    calls.append(an_invocation(two, "read", success=False, duration_ms=0.5, timestamp=5000.0))
    calls.append(an_invocation(two, "read", upstream="gitlab", timestamp=6000.0))
    found = figures(one, two, *calls, an_exposure(one, "read", hidden=("unused",)))
    github, gitlab, unused = tool_statistics(found)
    assert (github.tool, github.upstream, github.invocations, github.failures) == ("read", "github", 21, 1)
    assert (github.sessions, github.median_ms, github.p95_ms, github.last_used) == (2, 10.0, 19.0, 5000.0)
    assert (gitlab.upstream, gitlab.invocations, gitlab.median_ms, gitlab.p95_ms) == ("gitlab", 1, 1.5, 1.5)
    assert (unused.tool, unused.upstream, unused.invocations, unused.uses) == ("unused", "", 0, 0)
    assert (unused.median_ms, unused.p95_ms, unused.last_used) == (None, None, None)
    totals = tool_totals(found, "read")
    assert (totals.upstream, totals.invocations, totals.sessions, totals.last_used) == ("github", 22, 2, 6000.0)


def test_imported_sessions_meta_tools_refused_calls_and_unknown_names_are_no_use_of_a_tool():
    session, imported = a_session(), a_session(method=IdentificationMethod.TRANSCRIPT)
    failed = {"success": False, "error_kind": ErrorKind.PROTOCOL}
    found = figures(
        session,
        imported,
        an_exposure(session, "listed", "refused"),
        an_invocation(session, "listed"),
        an_invocation(session, "refused", upstream="", **failed),
        an_invocation(session, "unknown", **failed),
        an_invocation(session, "call_tool", upstream=OWN_UPSTREAM),
        an_invocation(imported, "imported"),
    )
    assert [(each.tool, each.invocations) for each in tool_statistics(found)] == [("listed", 1), ("refused", 0)]
    assert (found.usage.calls, found.usage.meta_tool_calls) == (3, 1)


def test_calls_are_counted_in_spans_of_time():
    session = a_session(started_at=99.0)
    times = [99.9, 100.0, 109.9, 110.0, 129.9, 130.0]
    found = figures(session, *(an_invocation(session, "read", timestamp=at) for at in times))
    assert [each.calls for each in usage_over_time(found, 100.0, 130.0, 3)] == [2, 1, 1]
    assert [each.calls for each in usage_over_time(found, 0.0, 9e9, 1)] == [6]


def test_calls_of_a_span_are_counted_by_how_their_tools_were_found():
    session = a_session()
    lost = {"success": False, "error_kind": ErrorKind.PROTOCOL}
    found = figures(
        session,
        an_invocation(session, "read", found=DiscoveryMethod.LISTED),
        an_invocation(session, "write", found=DiscoveryMethod.SEARCHED, success=False, error_kind=ErrorKind.TOOL),
        an_invocation(session, "nothing", found=DiscoveryMethod.NAMED, **lost),
        an_invocation(session, "call_tool", upstream=OWN_UPSTREAM, found=DiscoveryMethod.LISTED),
    )
    assert usage_over_time(found, 0.0, 9e9, 1) == [UsageCounts(calls=3, failures=2, listed=1, searched=1, named=1)]
    of_tool = usage_over_time(found, 0.0, 9e9, 1, tool="write")
    assert of_tool == [UsageCounts(calls=1, failures=1, searched=1)]


def test_lists_of_a_span_are_those_of_the_mode_that_figures_are_of():
    session = a_session()
    found = figures(
        session,
        an_exposure(session, "a", "b", "c", timestamp=10.0, mode="enforce"),
        an_exposure(session, "a", hidden=("b", "c"), timestamp=11.0, mode="shadow"),
        an_exposure(session, "a", timestamp=13.0, surface=SEARCH_SURFACE, mode="shadow"),
        an_exposure(session, "a", "b", hidden=("c",), timestamp=25.0, mode="shadow"),
    )
    counts = [(each.lists, each.tools_shown, each.tools_available) for each in usage_over_time(found, 10.0, 30.0, 2)]
    assert counts == [(1, 1, 3), (1, 2, 3)]
