"""Tools: how each is used, with which others, and which are not as they were approved."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from riglm.application.control.running_proxy import RunningProxy
from riglm.application.control.sessions import cut_page, parse_cursor
from riglm.application.control.statistics import get_series
from riglm.application.reports.figures import tool_statistics, tool_totals
from riglm.domain import jsonrpc
from riglm.domain.audit import AuditEvent
from riglm.domain.errors import ConflictError, NotFoundError
from riglm.domain.schemas import control_api as models
from riglm.domain.tool_pin import ToolPin
from riglm.ports.analytics import AnalyticsPort

REFRESH_SECONDS: Final = 30.0
"""Minimum seconds between two computations of the co-occurrences of tools."""

_MAX_COMPANIONS: Final = 50
_LEAD_SECONDS: Final = 900.0
"""The series of a tool begins this long before its first call, so that spans are not shorter than 15 seconds."""


async def list_tools(
    proxy: RunningProxy, *, unused_only: bool = False, since: float = 0.0, limit: int = 100, cursor: str | None = None
) -> models.Page[models.ToolEntry]:
    """Return the tools of `find_tools`, page by page.

    Raises:
        NotFoundError: the cursor leads nowhere.
    """
    found = [each for each in await find_tools(proxy, since) if not (unused_only and each.uses)]
    if cursor is not None:
        key = parse_cursor(cursor, lambda rank, tool, upstream: (int(rank), str(tool), str(upstream)))
        found = [each for each in found if _get_place(each) > key]
    return cut_page(found, limit, _get_place)


async def find_tools(proxy: RunningProxy, since: float) -> Sequence[models.ToolEntry]:
    """Return every tool that ran or was listed in sessions since then, or is listed now, most used first, then by name.

    Meta-tools are left out, and so are names that only clients used, of tools that there never were.
    """
    live = await proxy.loop.look(proxy.live_tools)
    found = tool_statistics(await proxy.queries.figures(since), live)
    named = (each if each.invocations else replace(each, upstream=live.get(each.tool, "")) for each in found)
    return [models.ToolEntry.model_validate(each) for each in named]


async def get_tool(proxy: RunningProxy, name: str, *, since: float = 0.0) -> models.ToolDetail:
    """Return one tool, over all servers that had it; its series begins shortly before its first call.

    Raises:
        NotFoundError: it was neither used nor listed.
    """
    entries = [each for each in await find_tools(proxy, since) if each.tool == name]
    if not entries:
        raise NotFoundError("there is no tool of this name: none was used or listed in the sessions that count")
    figures = await proxy.queries.figures(since)
    entry = entries[0] if len(entries) == 1 else models.ToolEntry.model_validate(tool_totals(figures, name))
    pairs = await proxy.queries.ask(
        ("companions", name), lambda store: _refresh_cooccurrences(store).get_cooccurrences([name])
    )
    companions = (
        models.Companion(
            tool=pair.tool_b if pair.tool_a == name else pair.tool_a,
            count=pair.count,
            mean_distance=pair.average_distance,
        )
        for pair in pairs[:_MAX_COMPANIONS]
    )
    begin = min((call.timestamp for _, call in figures.calls if call.tool == name), default=None)
    series = await get_series(
        proxy, since=None if begin is None else max(0.0, begin - _LEAD_SECONDS), sessions_since=since, tool=name
    )
    raw = await proxy.loop.look(lambda: proxy.services.definition(name))
    return models.ToolDetail(
        **dict(entry),
        description=jsonrpc.text(jsonrpc.members(raw).get("description")) if raw else None,
        cooccurrences=tuple(companions),
        series=series,
    )


async def get_cooccurrences(proxy: RunningProxy, limit: int = 30) -> models.CooccurrenceMap:
    """Return the `limit` tools that are used together most, and their pairs."""
    found = await proxy.queries.ask(
        ("pairs", limit), lambda store: _refresh_cooccurrences(store).list_top_cooccurrences(limit)
    )
    tools = dict.fromkeys(tool for pair in found for tool in (pair.tool_a, pair.tool_b))
    return models.CooccurrenceMap(tools=tuple(tools), pairs=tuple(map(models.ToolPair.model_validate, found)))


async def list_tool_changes(proxy: RunningProxy) -> models.ToolChanges:
    """Return the tools of all servers that are not as they were approved, by server and name."""
    pins = await proxy.store.ask(lambda store: store.list_tool_pins())
    found = [models.ToolChangeEntry.model_validate(pin) for pin in pins if pin.change is not None]
    return models.ToolChanges(items=found)


async def approve_tool(proxy: RunningProxy, approval: models.ToolApproval) -> models.ToolChangeEntry:
    """Approve the definition of a tool with this digest; it is in force when this returns.

    Raises:
        NotFoundError: the tool did not change, or there is none.
        ConflictError: the server lists a different definition by now.
    """
    server, tool = approval.server, approval.tool
    found = await proxy.store.ask(lambda store: store.list_tool_pins([server]))
    pin = next((pin for pin in found if pin.name == tool and pin.change is not None), None)
    if pin is None:
        raise NotFoundError(f"{server} has no changed tool {tool!r} — fix: use a name from GET /tools/changes")
    if pin.seen_digest != approval.digest:
        raise ConflictError("the server lists a different definition by now — fix: look at GET /tools/changes again")
    approved = replace(pin, digest=pin.seen_digest, definition=pin.seen)

    def approve(store: AnalyticsPort) -> Sequence[ToolPin]:
        store.approve_tools([approved])
        return store.list_tool_pins()

    pins = await proxy.store.ask(approve)
    await proxy.loop.look(lambda: proxy.services.pins.read(pins))
    proxy.record_audit(AuditEvent.TOOL_APPROVED, {"upstream": server, "tool": tool, "digest": approval.digest})
    return models.ToolChangeEntry.model_validate(approved)


def _refresh_cooccurrences(store: AnalyticsPort) -> AnalyticsPort:
    """Compute the co-occurrences again if they are old, and if no other process maintains the store."""
    now = time.time()
    if now - store.get_refresh_time() >= REFRESH_SECONDS:
        with store.maintenance_lease() as mine:
            if mine:
                store.refresh_cooccurrences(now)
    return store


def _get_place(entry: models.ToolEntry) -> tuple[int, str, str]:
    return -entry.invocations, entry.tool, entry.upstream
