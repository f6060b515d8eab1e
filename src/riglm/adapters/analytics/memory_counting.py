"""What records kept in memory come to."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from uuid import UUID

from riglm.adapters.analytics.percentiles import nearest_rank
from riglm.domain.exposure import SEARCH_SURFACE, Exposure, ExposureTotals
from riglm.domain.invocation import USES, Found, ToolInvocation
from riglm.domain.session import Session
from riglm.ports.overview import SessionSummary, ToolStatistics


def summary(session: Session, calls: Sequence[ToolInvocation], exposures: Sequence[Exposure]) -> SessionSummary:
    """A session with what happened in it; its sequence number is set."""
    session.sequence = max((call.sequence_number for call in calls), default=0)
    return SessionSummary(
        session=session,
        invocations=len(calls),
        failures=sum(not call.success for call in calls),
        exposures=len(exposures),
        lists=sum(each.is_list for each in exposures),
        list_changes=sum(1 for _ in _changes(exposures)),
        searches=_searches(exposures),
    )


def tools(calls: Iterable[ToolInvocation], others: Iterable[str]) -> Sequence[ToolStatistics]:
    """How each tool of each upstream was used in these calls, and `others` that were not; most used first."""
    by_tool: defaultdict[tuple[str, str], list[ToolInvocation]] = defaultdict(list)
    for call in calls:
        by_tool[call.tool, call.upstream].append(call)
    names = set(others)
    by_tool.update({(tool, ""): [] for tool in names - {tool for tool, _ in by_tool}})
    found = [
        replace(statistics(tool, upstream, its_calls), in_lists=tool in names)
        for (tool, upstream), its_calls in by_tool.items()
    ]
    return sorted(found, key=lambda each: (-each.invocations, each.tool, each.upstream))


def statistics(tool: str, upstream: str, calls: Sequence[ToolInvocation]) -> ToolStatistics:
    """How a tool was used in these calls."""
    durations = sorted(call.duration_ms for call in calls)
    return ToolStatistics(
        tool=tool,
        upstream=upstream,
        invocations=len(calls),
        failures=sum(not call.success for call in calls),
        sessions=len({call.session_id for call in calls}),
        median_ms=nearest_rank(durations, 50),
        p95_ms=nearest_rank(durations, 95),
        last_used=max((call.timestamp for call in calls), default=0.0),
        uses=sum(call.error_kind in USES for call in calls),
        listed=sum(call.found is Found.LISTED for call in calls),
        searched=sum(call.found is Found.SEARCHED for call in calls),
    )


def totals(exposures: Sequence[Exposure]) -> Sequence[ExposureTotals]:
    """What these exposures came to, for each mode that occurred, in the order of their names."""
    changed = list(_changes(exposures))
    found = []
    for mode in sorted({each.mode for each in exposures}):
        told = [each for each in exposures if each.mode == mode]
        lists = [each for each in told if each.is_list]
        changes = [each for each in changed if each.mode == mode]
        found.append(
            ExposureTotals(
                mode=mode,
                sessions=len({each.session_id for each in told}),
                lists=len(lists),
                changes=len(changes),
                searches=_searches(told),
                tokens_shown=sum(each.tokens_shown for each in lists),
                tokens_hidden=sum(each.tokens_hidden for each in lists),
                tokens_own=sum(each.tokens_own if each.is_list else each.tokens_shown for each in told),
                tokens_resent=sum(each.tokens_shown for each in changes),
            )
        )
    return found


def _changes(exposures: Iterable[Exposure]) -> Iterator[Exposure]:
    """The lists that differ from the one before in their session."""
    by_session: defaultdict[UUID, list[Exposure]] = defaultdict(list)
    for each in sorted(exposures, key=lambda each: (each.timestamp, each.id)):
        if each.is_list:
            by_session[each.session_id].append(each)
    for lists in by_session.values():
        yield from (after for before, after in pairwise(lists) if before.shown != after.shown)


def _searches(exposures: Iterable[Exposure]) -> int:
    return sum(each.surface == SEARCH_SURFACE for each in exposures)
