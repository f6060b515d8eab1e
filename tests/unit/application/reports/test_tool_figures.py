"""The figures of recorded sessions by tool and over time."""

from riglm.application.reports.figures import read_figures
from riglm.application.reports.tool_figures import UsageCounts, tool_statistics, usage_over_time
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ErrorKind
from riglm.domain.list_plan import Prices
from riglm.domain.session import IdentificationMethod
from tests.records import a_session, an_exposure, an_invocation
from tests.stores.memory import InMemoryAnalytics


def figures(*records):
    with InMemoryAnalytics() as store:
        store.record_many(records)
        return read_figures(store, Prices())


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
