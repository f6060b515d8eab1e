"""What was recorded, summed up: for `riglm stats`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from riglm.domain.invocation import OWN_UPSTREAM

if TYPE_CHECKING:
    from riglm.application.evaluation.record import Record
    from riglm.domain.exposure import ExposureTotals
    from riglm.domain.session_cost import Cost
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
    "Calls, lists and tokens are of all sessions, prices and hit rates of the latest 1,000 that used a tool, as in "
    "`riglm report`. Hit rates count the calls made with a list that hid something. A price counts all model requests, "
    "with prompt caching: 1 is the price without a proxy. In the mode shadow nothing was hidden, and the numbers are "
    "those of the lists that filtering would have shown."
)
"""What is counted, and how it differs from what `riglm report` says."""


def totals(
    known: "Sequence[ToolStatistics]", counted: "Sequence[SessionSummary]", record: "Record"
) -> dict[str, int | float | None]:
    """Return numbers over all tools and sessions; shares are None if there is nothing to share.

    A call had zero hops if its tool was in the list, counting lists that hid something. Meta-tools are counted apart.
    """
    tools = [tool for tool in known if tool.upstream != OWN_UPSTREAM]
    calls = sum(tool.invocations for tool in tools)
    judged = record.of(record.mode).judged
    searches = sum(summary.searches for summary in counted)
    return {
        "sessions": len(counted),
        "calls": calls,
        "failed_calls": sum(tool.failures for tool in tools),
        "calls_of_own_tools": sum(tool.invocations for tool in known) - calls,
        "tools_seen": len(tools),
        "tools_used": sum(tool.uses > 0 for tool in tools),
        "calls_found_by_search": sum(tool.searched for tool in tools),
        "zero_hop_percent": round(100 * sum(use.in_list for use in judged) / len(judged), 1) if judged else None,
        "searches_per_session": round(searches / len(counted), 3) if counted else None,
        "list_changes_per_session": (
            round(sum(summary.list_changes for summary in counted) / len(counted), 3) if counted else None
        ),
    }


def price_line(mode: str, cost: "Cost", net: int | None = None) -> str:
    """Return what the sessions of a mode cost, in words; `net` are the tokens that their lists saved."""
    if cost.price is None or cost.price_of_search is None:
        return ""
    would = "would have been " if mode == "shadow" else ""
    words = f"price {would}{cost.price:.2f} of no proxy, {cost.price_of_search:.2f} of the host's tool search"
    words += "" if net is None else f"; net {net:,} tokens"
    return f"{mode}: {words}, in {cost.sessions:,} session{'' if cost.sessions == 1 else 's'}"


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
