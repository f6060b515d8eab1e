"""What was recorded, summed up: for `riglm stats`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from riglm.domain.invocation import OWN_UPSTREAM

if TYPE_CHECKING:
    from riglm.domain.exposure import ExposureTotals
    from riglm.ports.overview import SessionSummary, ToolStatistics

EXPOSURE_COLUMNS = (
    "filtering",
    "sessions",
    "lists",
    "changed",
    "searches",
    "tokens shown",
    "hidden",
    "own tools",
    "re-sent",
    "net saved",
)
"""Titles for `exposure_row`."""

EXPLANATION = (
    "These numbers are of all sessions. Calls, zero hops and searches are what clients really did: in the mode shadow "
    "they see every tool, so their calls have zero hops. Lists and tokens of the mode shadow are those that "
    "filtering would have shown, riglm's own tools beside them; nothing was hidden or saved yet. `riglm report` counts "
    "the same lists, of the latest sessions that used a tool, and says how many calls would have found theirs in them."
)
"""What is counted, and how it differs from what `riglm report` says."""


def totals(known: "Sequence[ToolStatistics]", counted: "Sequence[SessionSummary]") -> dict[str, int | float | None]:
    """Numbers over all tools and sessions; shares are None where there is nothing to share.

    A call had zero hops when its tool was in the list that the client had. riglm's own tools are counted apart.
    """
    tools = [tool for tool in known if tool.upstream != OWN_UPSTREAM]
    calls = sum(tool.invocations for tool in tools)
    listed = sum(tool.listed for tool in tools)
    searches = sum(summary.searches for summary in counted)
    return {
        "sessions": len(counted),
        "calls": calls,
        "failed_calls": sum(tool.failures for tool in tools),
        "calls_of_own_tools": sum(tool.invocations for tool in known) - calls,
        "tools_seen": len(tools),
        "tools_used": sum(tool.uses > 0 for tool in tools),
        "calls_found_by_search": sum(tool.searched for tool in tools),
        "zero_hop_percent": round(100 * listed / calls, 1) if calls else None,
        "searches_per_session": round(searches / len(counted), 3) if counted else None,
        "list_changes_per_session": (
            round(sum(summary.list_changes for summary in counted) / len(counted), 3) if counted else None
        ),
    }


def exposure_fields(total: "ExposureTotals") -> dict[str, Any]:
    """What the lists of one mode came to, for JSON output; tokens are estimates."""
    return {
        "mode": total.mode,
        "sessions": total.sessions,
        "lists": total.lists,
        "changes": total.changes,
        "searches": total.searches,
        "tokens_shown": total.tokens_shown,
        "tokens_hidden": total.tokens_hidden,
        "tokens_own": total.tokens_own,
        "tokens_resent": total.tokens_resent,
        "tokens_net": total.tokens_net,
    }


def exposure_row(total: "ExposureTotals") -> Sequence[object]:
    """What the lists of one mode came to, as a row under `EXPOSURE_COLUMNS`."""
    return tuple(exposure_fields(total).values())
