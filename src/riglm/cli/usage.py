"""`riglm sessions`, `riglm tools` and `riglm stats`: what was recorded."""

import contextlib
import time
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.live import Live

from riglm.application.reports.figures import (
    Observations,
    cost_fields,
    hit_figures,
    list_figures,
    read_figures,
    tool_statistics,
)
from riglm.application.reports.report import judge_figures
from riglm.cli import output
from riglm.cli.store_access import find_store, settings_in_use
from riglm.domain.cooccurrence import Cooccurrence
from riglm.domain.duration import format_count
from riglm.domain.errors import RiglmError
from riglm.domain.invocation import ToolInvocation
from riglm.domain.schemas.control_api import ToolEntry
from riglm.domain.schemas.settings import Settings
from riglm.domain.session_cost import MAX_CALLS, MAX_SESSIONS
from riglm.ports.analytics import AnalyticsPort, SessionSummary

_COUNTED: Final = (
    f"the latest {MAX_SESSIONS:,} sessions that riglm proxied, with up to {MAX_CALLS:,} calls; sessions imported from "
    "transcripts are left out"
)
"""The sessions that figures are of."""

_SESSIONS_EXPLANATION: Final = (
    "These are all recorded sessions, imported ones included, and their calls include those of meta-tools. `riglm "
    f"stats`, `tools`, `report` and the dashboard count {_COUNTED}, and so are calls of meta-tools."
)

_TOOLS_EXPLANATION: Final = (
    f"Calls are those of {_COUNTED}, as in `riglm stats`. Meta-tools are not listed, nor names that no server has."
)

_STATS_EXPLANATION: Final = (
    f"All figures are of {_COUNTED}, as in `riglm report` and on the dashboard. Pairs are of all "
    "sessions, up to 50,000. The hit rate is the share of calls whose tool was in the list, of calls with a list that"
    " hid something. A price counts all model requests, with prompt caching: 1 is the price without a proxy; it takes"
    " two sessions. In the mode shadow nothing was hidden, and the figures are estimates, of the lists that filtering"
    " would have shown."
)

_TITLES: Final = {"meta_tool_calls": "calls of meta-tools", "hit_rate_percent": "hit rate, percent"}
_LIST_COLUMNS: Final = {
    "mode": "filtering",
    "sessions": "sessions",
    "lists": "lists",
    "changes": "changed",
    "searches": "searches",
    "tokens_shown": "tokens shown",
    "tokens_hidden": "hidden",
    "tokens_meta_tools": "meta-tools",
    "tokens_resent": "re-sent",
    "tokens_net": "net saved",
}
_SESSION_FIELDS: Final = ("profile", "project", "transport", "era", "protocol_version", "method", "confidence")
_SUMMARY_FIELDS: Final = ("invocations", "failures", "exposures", "list_changes", "searches")
_MAX_PAIRS: Final = 20
_WATCH_SECONDS: Final = 2.0


def sessions(
    session_id: Annotated[
        str | None, typer.Argument(metavar="SESSION_ID", help="Show this session's calls; its last characters do.")
    ] = None,
    limit: Annotated[
        int,
        typer.Option("--limit", metavar="N", min=1, max=output.MAX_ROWS, help="Maximum number of rows, newest first."),
    ] = 50,
    config: output.ConfigOption = None,
    as_json: output.JsonOption = False,
) -> None:
    """List all recorded sessions, or one session's calls.

    Sessions imported from transcripts and calls of meta-tools are included; `riglm stats` counts neither.
    """
    store = find_store(settings_in_use(config))
    if session_id is not None:
        if store is None:
            raise _no_session("no session ends", session_id)
        with store:
            _print_session(store, session_id, as_json)
        return
    with store or contextlib.nullcontext() as stored:
        found = [] if stored is None else stored.list_sessions(limit)
    fields, rows = [*map(session_fields, found)], [*map(_session_row, found)]
    columns = ("session", "started", "client", "reached by", "era", "recognised by", "calls", "failed")
    output.print_rows(fields, "Sessions", columns, rows, as_json=as_json, explanation=_SESSIONS_EXPLANATION)


def tools(config: output.ConfigOption = None, as_json: output.JsonOption = False) -> None:
    """List the tools that were listed or used, in the sessions that `riglm stats` counts."""
    settings = settings_in_use(config)
    with find_store(settings) or contextlib.nullcontext() as store:
        found = [] if store is None else tool_statistics(_read_figures(store, settings))
    fields, rows = [*map(tool_fields, found)], [*map(_tool_row, found)]
    columns = "tool", "server", "calls", "failed", "listed", "searched", "sessions", "median ms", "p95 ms", "last used"
    output.print_rows(fields, "Tools", columns, rows, as_json=as_json, explanation=_TOOLS_EXPLANATION)


def stats(
    watch: Annotated[bool, typer.Option("--watch", help="Show the figures until Ctrl-C, every 2 seconds.")] = False,
    config: output.ConfigOption = None,
    as_json: output.JsonOption = False,
) -> None:
    """Sum up what was recorded."""
    settings = settings_in_use(config)
    store = find_store(settings)
    if store is None:
        found = _summarize_figures(Observations(), settings, 0, ())
        output.print_json(found) if as_json else typer.echo(found["verdict"]["text"])
        return
    with store:
        found = _read_stats(store, settings)
        if as_json:
            output.print_json(found)
        elif watch:
            with contextlib.suppress(KeyboardInterrupt):
                _watch_stats(store, settings, found)
        else:
            output.create_console().print(_render_stats(found, store.count_sessions()[1]))


def _watch_stats(store: AnalyticsPort, settings: Settings, found: dict[str, Any]) -> None:
    console = output.create_console()
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            live.update(_render_stats(found, store.count_sessions()[1]), refresh=True)
            time.sleep(_WATCH_SECONDS)
            found = _read_stats(store, settings)


def _read_stats(store: AnalyticsPort, settings: Settings) -> dict[str, Any]:
    stored = store.count_sessions()[1]
    if stored <= MAX_SESSIONS:  # of more, maintenance does it
        store.refresh_cooccurrences(time.time())
    figures = _read_figures(store, settings)
    return _summarize_figures(figures, settings, stored, store.get_cooccurrences(sorted(figures.usage.known)))


def _read_figures(store: AnalyticsPort, settings: Settings) -> Observations:
    return read_figures(store, settings.prices.prices())


def _summarize_figures(
    figures: Observations, settings: Settings, stored: int, pairs: Sequence[Cooccurrence]
) -> dict[str, Any]:
    """Return the figures for JSON output; shares are None if there is nothing to share."""
    usage, uses, lists = figures.usage, hit_figures(figures.now.judged), list_figures(figures.lists)
    judged = uses["hits"] + uses["missed"]
    by_mode = {mode: figures.of(mode) for mode in sorted({each.mode for each in figures.lists})}
    return {
        "verdict": judge_figures(figures, settings.filtering, stored=stored).model_dump(),
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
        "exposures": [
            {"mode": mode, **list_figures(its.lists), "priced": cost_fields(its.cost)} for mode, its in by_mode.items()
        ],
        "cooccurrences": [
            {
                "tool_a": pair.tool_a,
                "tool_b": pair.tool_b,
                "count": pair.count,
                "average_distance": round(pair.average_distance, 3),
            }
            for pair in pairs
        ],
        "explanation": _STATS_EXPLANATION,
    }


def _render_stats(found: dict[str, Any], stored: int) -> Group:
    prices = (_format_price(row["mode"], row["priced"], row["tokens_net"]) for row in found["exposures"])
    of = f"the latest {found['sessions']:,} of {stored:,} sessions" if stored > MAX_SESSIONS else "all sessions"
    numbers = {name: value for name, value in found.items() if not isinstance(value, list | dict | str)}
    rows = [
        (_TITLES.get(name, name.replace("_", " ")), "-" if value is None else value) for name, value in numbers.items()
    ]
    parts: list[RenderableType] = [found["verdict"]["text"], *(line for line in prices if line)]
    parts.append(output.create_table(f"Recorded in {of}", ("what", "number"), rows))
    if found["exposures"]:
        lists = [[row[name] for name in _LIST_COLUMNS] for row in found["exposures"]]
        parts.append(
            output.create_table(
                "Lists and estimated tokens, by mode of filtering", tuple(_LIST_COLUMNS.values()), lists
            )
        )
    if found["cooccurrences"]:
        pairs = [tuple(pair.values()) for pair in found["cooccurrences"][:_MAX_PAIRS]]
        parts.append(output.create_table("Used together", ("tool", "and tool", "sessions", "calls apart"), pairs))
    return Group(*parts, found["explanation"])


def _format_price(mode: str, priced: dict[str, Any], net: int) -> str:
    """Return what the sessions of a mode cost and the tokens that their lists saved; empty without a price."""
    if priced["price"] is None:
        return ""
    would = "would have been " if mode == "shadow" else ""
    words = f"price {would}{priced['price']:.2f} of no proxy, {priced['price_of_search']:.2f} of the host's tool search"
    return f"{mode}: {words}; net {net:,} tokens, in {format_count(priced['sessions'], 'session')}"


def session_fields(summary: SessionSummary) -> dict[str, Any]:
    """A session for JSON output."""
    session = summary.session
    return {
        "id": session.id,
        "started_at": output.json_time(session.started_at),
        "ended_at": output.json_time(session.ended_at),
        "client": session.client.name,
        "client_version": session.client.version,
        **{name: getattr(session, name) for name in _SESSION_FIELDS},
        "tools_available": len(session.tools_available),
        **{name: getattr(summary, name) for name in _SUMMARY_FIELDS},
    }


def invocation_fields(call: ToolInvocation) -> dict[str, Any]:
    """An invocation for JSON output, without its session."""
    fields = {name: value for name, value in msgspec.to_builtins(call).items() if name != "session_id"}
    return {**fields, "timestamp": output.json_time(call.timestamp), "duration_ms": round(call.duration_ms, 3)}


def tool_fields(tool: ToolEntry) -> dict[str, Any]:
    """A tool's statistics for JSON output."""
    values = tool.model_dump(exclude={"named"})
    times = {name: values[name] and round(values[name], 3) for name in ("median_ms", "p95_ms")}
    return {**values, **times, "last_used": output.json_time(tool.last_used)}


def find_session(store: AnalyticsPort, wanted: str) -> SessionSummary:
    """Return the one session whose id ends so.

    Raises:
        RiglmError: there is none, or there are several.
    """
    matching = [
        found for found in store.list_sessions(limit=output.MAX_ROWS) if str(found.session.id).endswith(wanted.lower())
    ]
    if len(matching) != 1:
        raise _no_session(f"{len(matching)} sessions end" if matching else "no session ends", wanted)
    return matching[0]


def _no_session(what: str, wanted: str) -> RiglmError:
    return RiglmError(f"{what} in {wanted!r} — fix: copy the session from `riglm sessions`")


def _print_session(store: AnalyticsPort, wanted: str, as_json: bool) -> None:
    found = find_session(store, wanted)
    calls = store.list_invocations(found.session.id)
    if as_json:
        output.print_json({"session": session_fields(found), "invocations": [*map(invocation_fields, calls)]})
        return
    columns = ("#", "time", "tool", "server", "ms", "outcome", "found by")
    output.print_table(f"Calls of session {found.session.id}", columns, map(_call_row, calls))


def _session_row(summary: SessionSummary) -> Sequence[object]:
    session = summary.session
    client = f"{session.client.name} {session.client.version}".strip() or "-"
    recognised = f"{session.method.value} ({session.confidence.value})"
    reached = session.transport.value
    started = output.written_time(session.started_at)
    return session.id, started, client, reached, session.era.value, recognised, summary.invocations, summary.failures


def _tool_row(tool: ToolEntry) -> Sequence[object]:
    times = ("-" if each is None else each for each in (tool.median_ms, tool.p95_ms))
    counts = (tool.invocations, tool.failures, tool.listed, tool.searched, tool.sessions)
    return tool.tool, tool.upstream or "-", *counts, *times, output.written_time(tool.last_used)


def _call_row(call: ToolInvocation) -> Sequence[object]:
    outcome = "ok" if call.success else " ".join(str(part) for part in (call.error_kind, call.error_code) if part)
    place = call.sequence_number, output.written_time(call.timestamp), call.tool, call.upstream
    return *place, call.duration_ms, outcome, call.found.value
