"""`riglm sessions`, `riglm tools` and `riglm stats`: what was recorded."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from riglm.cli.measuring import settings_in_use
from riglm.cli.output import (
    MAX_ROWS,
    ConfigOption,
    JsonOption,
    json_time,
    print_json,
    print_table,
    progress,
    written_time,
)
from riglm.domain.errors import RiglmError
from riglm.domain.plurals import format_count
from riglm.domain.session_cost import MAX_CALLS, MAX_SESSIONS

if TYPE_CHECKING:
    from riglm.application.evaluation.record import Observations
    from riglm.application.evaluation.usage_figures import ToolStatistics
    from riglm.domain.cooccurrence import Cooccurrence
    from riglm.domain.invocation import ToolInvocation
    from riglm.domain.schemas.settings import Settings
    from riglm.ports.analytics import AnalyticsPort
    from riglm.ports.dashboard import SessionSummary


LIST_COLUMNS = (
    "filtering",
    "sessions",
    "lists",
    "changed",
    "searches",
    "tokens shown",
    "hidden",
    "meta-tools",
    "re-sent",
    "net saved",
)
"""Titles of the figures of lists."""

COUNTED = (
    f"the latest {MAX_SESSIONS:,} sessions that riglm proxied, with up to {MAX_CALLS:,} calls; sessions imported from "
    "transcripts are left out"
)
"""The sessions that figures are of."""

SESSIONS_EXPLANATION = (
    "These are all recorded sessions, imported ones included, and their calls include those of meta-tools. `riglm "
    f"stats`, `tools`, `report` and the dashboard count {COUNTED}, and so are calls of meta-tools."
)

TOOLS_EXPLANATION = (
    f"Calls are those of {COUNTED}, as in `riglm stats`. Meta-tools are not listed, nor names that no server has."
)

EXPLANATION = (
    f"All figures are of {COUNTED}, as in `riglm report` and on the dashboard. Pairs are of all "
    "sessions, up to 50,000. The hit rate is the share of calls whose tool was in the list, of calls with a list that"
    " hid something. A price counts all model requests, with prompt caching: 1 is the price without a proxy; it takes"
    " two sessions. In the mode shadow nothing was hidden, and the figures are estimates, of the lists that filtering"
    " would have shown."
)
"""What is counted, and in which sessions."""


def totals(figures: "Observations") -> dict[str, int | float | None]:
    """Return the numbers of sessions, calls and tools; shares are None if there is nothing to share."""
    from riglm.application.evaluation.record import hit_figures, list_figures

    usage, uses, lists = figures.usage, hit_figures(figures.now.judged), list_figures(figures.lists)
    judged = uses["hits"] + uses["missed"]
    return {
        "sessions": usage.sessions,
        "calls": usage.calls,
        "failed_calls": usage.failures,
        "meta_tool_calls": usage.meta_tool_calls,
        "tools_seen": len(usage.known),
        "tools_used": len(usage.used),
        "calls_found_by_search": usage.found_by_search,
        "hit_rate_percent": round(100 * uses["hits"] / judged, 1) if judged else None,
        "searches_per_session": round(lists["searches"] / usage.sessions, 3) if usage.sessions else None,
        "list_changes_per_session": round(lists["changes"] / usage.sessions, 3) if usage.sessions else None,
    }


_TITLES = {"meta_tool_calls": "calls of meta-tools", "hit_rate_percent": "hit rate, percent"}


def price_line(mode: str, priced: dict[str, Any], net: int) -> str:
    """Return in words what the sessions of a mode cost and the tokens that their lists saved; empty without a price."""
    if priced["price"] is None:
        return ""
    would = "would have been " if mode == "shadow" else ""
    words = f"price {would}{priced['price']:.2f} of no proxy, {priced['price_of_search']:.2f} of the host's tool search"
    return f"{mode}: {words}; net {net:,} tokens, in {format_count(priced['sessions'], 'session')}"


_LIST_FIGURES = (
    "sessions",
    "lists",
    "changes",
    "searches",
    "tokens_shown",
    "tokens_hidden",
    "tokens_meta_tools",
    "tokens_resent",
    "tokens_net",
)
_MAX_PAIRS = 20


def sessions(
    session_id: Annotated[
        str | None, typer.Argument(metavar="SESSION_ID", help="Show this session's calls; its last characters do.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=MAX_ROWS, help="Maximum number of rows, newest first.")
    ] = 50,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List all recorded sessions, or one session's calls.

    Sessions imported from transcripts and calls of meta-tools are included; `riglm stats` counts neither.
    """
    store = _store(config)
    if store is None:
        if session_id is not None:
            raise _no_session("no session ends", session_id)
        _nothing(as_json, [])
        return
    with store:
        if session_id is not None:
            _show_session(store, session_id, as_json)
            return
        found = store.list_sessions(limit)
    if as_json:
        print_json([session_fields(summary) for summary in found])
    elif not found:
        _nothing(as_json, [])
    else:
        columns = ("session", "started", "client", "reached by", "era", "recognised by", "calls", "failed")
        print_table("Sessions", columns, map(_session_row, found))
        typer.echo(SESSIONS_EXPLANATION)


def tools(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the tools that were listed or used, in the sessions that `riglm stats` counts."""
    settings = settings_in_use(config)
    store = recorded(settings)
    if store is None:
        _nothing(as_json, [])
        return
    from riglm.application.evaluation.usage_figures import tool_statistics

    with store:
        found = tool_statistics(_figures(store, settings))
    if as_json:
        print_json([tool_fields(tool) for tool in found])
    elif not found:
        _nothing(as_json, [])
    else:
        columns = (
            "tool",
            "server",
            "calls",
            "failed",
            "listed",
            "searched",
            "sessions",
            "median ms",
            "p95 ms",
            "last used",
        )
        print_table("Tools", columns, map(_tool_row, found))
        typer.echo(TOOLS_EXPLANATION)


def stats(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Sum up what was recorded."""
    from riglm.application.evaluation.record import Observations

    settings = settings_in_use(config)
    store = recorded(settings)
    if store is None:
        _nothing(as_json, _summary(Observations(), ()))
        return
    with store:
        stored = store.count_sessions()[1]
        if stored <= MAX_SESSIONS:  # of more, maintenance does it
            store.refresh_cooccurrences(time.time())
        figures = _figures(store, settings)
        pairs = store.get_cooccurrences(sorted(figures.usage.known))
    found = _summary(figures, pairs)
    if as_json:
        print_json(found)
        return
    for row in found["exposures"]:
        if line := price_line(row["mode"], row["priced"], row["tokens_net"]):
            typer.echo(line)
    rows = [
        (_TITLES.get(name, name.replace("_", " ")), "-" if number is None else number)
        for name, number in totals(figures).items()
    ]
    of = f"the latest {figures.usage.sessions:,} of {stored:,} sessions" if stored > MAX_SESSIONS else "all sessions"
    print_table(f"Recorded in {of}", ("what", "number"), rows)
    if found["exposures"]:
        lists = [[row[name] for name in ("mode", *_LIST_FIGURES)] for row in found["exposures"]]
        print_table("Lists and estimated tokens, by mode of filtering", LIST_COLUMNS, lists)
    if pairs:
        together = [(pair.tool_a, pair.tool_b, pair.count, pair.average_distance) for pair in pairs[:_MAX_PAIRS]]
        print_table("Used together", ("tool", "and tool", "sessions", "calls apart"), together)
    typer.echo(EXPLANATION)


def session_fields(summary: "SessionSummary") -> dict[str, Any]:
    """A session for JSON output."""
    session = summary.session
    return {
        "id": str(session.id),
        "started_at": json_time(session.started_at),
        "ended_at": json_time(session.ended_at),
        "client": session.client.name,
        "client_version": session.client.version,
        "profile": session.profile,
        "project": session.project,
        "transport": session.transport.value,
        "era": session.era.value,
        "protocol_version": session.protocol_version,
        "method": session.method.value,
        "confidence": session.confidence.value,
        "tools_available": len(session.tools_available),
        "invocations": summary.invocations,
        "failures": summary.failures,
        "exposures": summary.exposures,
        "list_changes": summary.list_changes,
        "searches": summary.searches,
    }


def invocation_fields(call: "ToolInvocation") -> dict[str, Any]:
    """An invocation for JSON output."""
    return {
        "id": str(call.id),
        "sequence_number": call.sequence_number,
        "tool": call.tool,
        "upstream": call.upstream,
        "timestamp": json_time(call.timestamp),
        "duration_ms": round(call.duration_ms, 3),
        "success": call.success,
        "error_kind": call.error_kind.value if call.error_kind else None,
        "error_code": call.error_code,
        "found": call.found.value,
        "arguments_hash": call.arguments_hash,
        "arguments": call.arguments,
    }


def tool_fields(tool: "ToolStatistics") -> dict[str, Any]:
    """A tool's statistics for JSON output."""
    return {
        "tool": tool.tool,
        "upstream": tool.upstream,
        "invocations": tool.invocations,
        "failures": tool.failures,
        "uses": tool.uses,
        "listed": tool.listed,
        "searched": tool.searched,
        "sessions": tool.sessions,
        "median_ms": None if tool.median_ms is None else round(tool.median_ms, 3),
        "p95_ms": None if tool.p95_ms is None else round(tool.p95_ms, 3),
        "last_used": json_time(tool.last_used),
    }


def pair_fields(pair: "Cooccurrence") -> dict[str, Any]:
    """A pair of tools for JSON output."""
    return {
        "tool_a": pair.tool_a,
        "tool_b": pair.tool_b,
        "count": pair.count,
        "average_distance": round(pair.average_distance, 3),
    }


def the_session(store: "AnalyticsPort", wanted: str) -> "SessionSummary":
    """The one session whose id ends so.

    Raises:
        RiglmError: there is none, or there are several.
    """
    matching = [
        found for found in store.list_sessions(limit=MAX_ROWS) if str(found.session.id).endswith(wanted.lower())
    ]
    if len(matching) != 1:
        what = f"{len(matching)} sessions end" if matching else "no session ends"
        raise _no_session(what, wanted)
    return matching[0]


def recorded(settings: "Settings") -> "AnalyticsPort | None":
    """The store that these settings name, not yet opened; None when nothing was ever recorded in it.

    Raises:
        AnalyticsUnavailableError: nothing could be recorded where the store would be.
    """
    from riglm.cli.store_access import is_there
    from riglm.composition.container import Container
    from riglm.composition.storage import store_path

    kind = settings.storage.kind
    if kind == "memory" or (kind == "sqlite" and not is_there(store_path(settings))):
        return None
    return Container(settings).create_store()


def _store(config: Path | None) -> "AnalyticsPort | None":
    return recorded(settings_in_use(config))


def _figures(store: "AnalyticsPort", settings: "Settings") -> "Observations":
    from riglm.application.evaluation.record import read_figures

    with progress("sessions", min(MAX_SESSIONS, store.count_sessions()[1])) as advance:
        return read_figures(store, settings.prices.prices(), on_session=advance)


def _nothing(as_json: bool, empty: list[Any] | dict[str, Any]) -> None:
    if as_json:
        print_json(empty)
    else:
        typer.echo("nothing recorded yet: put riglm in front of a server, for example `riglm run -- COMMAND`")


def _summary(figures: "Observations", pairs: "Sequence[Cooccurrence]") -> dict[str, Any]:
    from riglm.application.evaluation.record import cost_fields, list_figures

    by_mode = {mode: figures.of(mode) for mode in sorted({each.mode for each in figures.lists})}
    lists = [
        {"mode": mode, **list_figures(its.lists), "priced": cost_fields(its.cost)} for mode, its in by_mode.items()
    ]
    together = [pair_fields(pair) for pair in pairs]
    return {**totals(figures), "exposures": lists, "cooccurrences": together, "explanation": EXPLANATION}


def _no_session(what: str, wanted: str) -> RiglmError:
    return RiglmError(f"{what} in {wanted!r} — fix: copy the session from `riglm sessions`")


def _show_session(store: "AnalyticsPort", wanted: str, as_json: bool) -> None:
    found = the_session(store, wanted)
    calls = store.list_invocations(found.session.id)
    if as_json:
        fields = session_fields(found)
        print_json({"session": fields, "invocations": [invocation_fields(call) for call in calls]})
        return
    columns = ("#", "time", "tool", "server", "ms", "outcome", "found by")
    print_table(f"Calls of session {found.session.id}", columns, map(call_row, calls))


def _session_row(summary: "SessionSummary") -> Sequence[object]:
    session = summary.session
    client = f"{session.client.name} {session.client.version}".strip() or "-"
    recognised = f"{session.method.value} ({session.confidence.value})"
    reached = session.transport.value
    started = written_time(session.started_at)
    return session.id, started, client, reached, session.era.value, recognised, summary.invocations, summary.failures


def _tool_row(tool: "ToolStatistics") -> Sequence[object]:
    used = written_time(tool.last_used)
    times = ("-" if each is None else each for each in (tool.median_ms, tool.p95_ms))
    counts = (tool.invocations, tool.failures, tool.listed, tool.searched, tool.sessions)
    return tool.tool, tool.upstream or "-", *counts, *times, used


def call_row(call: "ToolInvocation") -> Sequence[object]:
    """An invocation as a row: number, time, tool, server, milliseconds, outcome, how the tool was found."""
    outcome = "ok" if call.success else " ".join(str(part) for part in (call.error_kind, call.error_code) if part)
    time = written_time(call.timestamp)
    return call.sequence_number, time, call.tool, call.upstream, call.duration_ms, outcome, call.found.value
