"""The figures of recorded sessions by tool and over time. Both count the calls that `UsageFigures` counts."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from riglm.application.reports.figures import Observations
from riglm.domain.invocation import DiscoveryMethod
from riglm.ports.analytics import TrainingCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStatistics:
    """How one tool of one upstream was used; durations are in milliseconds, times in seconds since the epoch.

    `uses` counts the calls in which the tool ran, including those that returned an error; a tool without uses may not
    exist. `listed` and `searched` count the calls that found the tool so. Percentiles are durations that occurred
    (nearest rank). For a tool that was never called, all numbers are zero or None, and `upstream` is empty.
    """

    tool: str
    upstream: str
    invocations: int
    failures: int
    sessions: int
    median_ms: float | None
    p95_ms: float | None
    last_used: float | None
    uses: int
    listed: int
    searched: int


@dataclass(slots=True, kw_only=True)
class UsageCounts:
    """Calls and lists in a span of time.

    `listed`, `searched` and `named` count the calls by how the client discovered their tools. `tools_shown` and
    `tools_available` are sums over the `lists`, which are those of the mode that figures are of.
    """

    calls: int = 0
    failures: int = 0
    listed: int = 0
    searched: int = 0
    named: int = 0
    lists: int = 0
    tools_shown: int = 0
    tools_available: int = 0


def usage_over_time(
    figures: Observations, since: float, until: float, spans: int, tool: str | None = None
) -> Sequence[UsageCounts]:
    """Return the counts from `since` until just before `until`, in `spans` spans of equal length, oldest first.

    With `tool`, only its calls count; lists are all lists.
    """
    counts = [UsageCounts() for _ in range(spans)]

    def span(at: float) -> UsageCounts:
        return counts[min(int((at - since) * (spans / (until - since))), spans - 1)]

    for _, call in figures.calls:
        if since <= call.timestamp < until and tool in (None, call.tool):
            each = span(call.timestamp)
            each.calls += 1
            each.failures += not call.success
            each.listed += call.found is DiscoveryMethod.LISTED
            each.searched += call.found is DiscoveryMethod.SEARCHED
            each.named += call.found is DiscoveryMethod.NAMED
    for shown in figures.now.lists:
        if since <= shown.at < until:
            each = span(shown.at)
            each.lists += 1
            each.tools_shown += shown.shown
            each.tools_available += shown.available
    return counts


def tool_statistics(figures: Observations, further: Collection[str] = ()) -> Sequence[ToolStatistics]:
    """Return how each tool of each upstream server was used, most used first, then by name.

    They are the tools that are known by the figures, and `further` ones. A call that riglm refused counts for no tool.
    """
    calls: dict[tuple[str, str], list[_SessionCall]] = defaultdict(list)
    names = {*figures.usage.known, *further}
    for session, call in figures.calls:
        if call.tool in names and (call.upstream or call.ran):
            calls[call.tool, call.upstream].append((session, call))
    found = [_statistics(*key, of_tool) for key, of_tool in calls.items()]
    found += [_statistics(tool, "", ()) for tool in names.difference(tool for tool, _ in calls)]
    return sorted(found, key=lambda each: (-each.invocations, each.tool, each.upstream))


def tool_totals(figures: Observations, tool: str) -> ToolStatistics:
    """Return how a tool was used on all upstream servers; `upstream` is the one that ran it most often."""
    calls = [each for each in figures.calls if each[1].tool == tool and (each[1].upstream or each[1].ran)]
    upstreams = Counter(call.upstream for _, call in calls)
    return _statistics(tool, min(upstreams, key=lambda each: (-upstreams[each], each), default=""), calls)


_SessionCall = tuple[UUID, TrainingCall]


def _statistics(tool: str, upstream: str, of_sessions: Sequence[_SessionCall]) -> ToolStatistics:
    calls = [call for _, call in of_sessions]
    durations = sorted(call.duration_ms for call in calls)
    return ToolStatistics(
        tool=tool,
        upstream=upstream,
        invocations=len(calls),
        failures=sum(not call.success for call in calls),
        sessions=len({session for session, _ in of_sessions}),
        median_ms=_nearest_rank(durations, 50),
        p95_ms=_nearest_rank(durations, 95),
        last_used=max((call.timestamp for call in calls), default=None),
        uses=sum(call.ran for call in calls),
        listed=sum(call.found is DiscoveryMethod.LISTED for call in calls),
        searched=sum(call.found is DiscoveryMethod.SEARCHED for call in calls),
    )


def _nearest_rank(ascending: Sequence[float], percent: int) -> float | None:
    """Return the smallest value that at least `percent` percent of the values do not exceed; None without any."""
    return ascending[math.ceil(len(ascending) * percent / 100) - 1] if ascending else None
