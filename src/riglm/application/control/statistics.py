"""The health of riglm, and statistics: all at a glance, what happened over time, kinds of work, and tools."""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any, Final

from riglm.application.control.running_proxy import RunningProxy
from riglm.application.control.sessions import cut_page, parse_cursor
from riglm.application.reports.figures import (
    ListObservation,
    cost_fields,
    hit_figures,
    list_figures,
    tool_statistics,
    tool_totals,
)
from riglm.application.reports.report import judge_figures
from riglm.domain import jsonrpc
from riglm.domain.audit import AuditEvent
from riglm.domain.errors import ConflictError, NotFoundError
from riglm.domain.exposure import Surface
from riglm.domain.retention import DAY_SECONDS
from riglm.domain.schemas import control_api as models
from riglm.domain.tool_pin import ToolPin
from riglm.domain.upstream import UpstreamHealth
from riglm.ports.analytics import AnalyticsPort, SessionHistoryPort, TrainingCall

_TIMEOUT_SECONDS: Final = 2.0
"""Seconds to wait for the proxy: less than usual, since a blocked proxy is an answer as well."""


async def get_health(proxy: RunningProxy) -> models.Health:
    """Return the state of all parts. The store is not asked: the state is that of the last query.

    Raises:
        ControlUnavailableError: the proxy is blocked.
    """
    upstreams, signal = await proxy.loop.look(
        lambda: (_list_upstreams(proxy), proxy.prediction.status()), timeout_seconds=_TIMEOUT_SECONDS
    )
    readiness, records, is_failing = _judge_readiness(upstreams), proxy.recorder.counts(), proxy.is_store_failing
    is_degraded = is_failing or any(each.state == "broken" for each in upstreams)
    is_blind = signal["embeddings"]["status"] == "unavailable"
    return models.Health(
        status="degraded" if is_degraded or is_blind else "ok",
        live=True,
        ready=readiness.ready,
        version=proxy.version,
        started_at=proxy.started_at,
        upstreams=tuple(upstreams),
        store=models.StoreHealth(
            kind=proxy.store_kind,
            state="unavailable" if is_failing else "ok",
            queued=records.queued,
            spooled=records.spooled,
        ),
        embedder=models.EmbedderSignal.model_validate(signal),
    )


async def get_readiness(proxy: RunningProxy) -> models.Readiness:
    """Return whether clients can be served: an unavailable store or embedder prevents no client from that."""
    return _judge_readiness(await proxy.loop.look(lambda: _list_upstreams(proxy), timeout_seconds=_TIMEOUT_SECONDS))


async def get_embedder(proxy: RunningProxy) -> Mapping[str, Any]:
    """Return the capability signal, and start loading the embedder, which `get_health` does not."""

    def load() -> Mapping[str, Any]:
        signal = proxy.prediction.status()
        proxy.prediction.begin()
        return signal

    return await proxy.loop.look(load)


def _list_upstreams(proxy: RunningProxy) -> list[models.UpstreamEntry]:
    healths, owners = {each.name: each for each in proxy.upstreams()}, proxy.parts.owners
    counts = proxy.parts.listed.counts() if owners.only else Counter(owners.servers().values())
    found = []
    for spec in proxy.specs:
        health = healths.get(spec.name, UpstreamHealth(name=spec.name))
        fields = {**asdict(health), "since": health.since or None}
        found.append(models.UpstreamEntry(**fields, transport=spec.kind, tools=counts.get(spec.name)))
    return found


def _judge_readiness(upstreams: Sequence[models.UpstreamEntry]) -> models.Readiness:
    broken = [each.name for each in upstreams if each.state == "broken"]
    if broken and len(broken) == len(upstreams):
        return models.Readiness(ready=False, reasons=(f"no server can be reached: {', '.join(broken)}",))
    return models.Readiness(ready=True)


_TOKENS: Final = ("shown", "hidden", "meta_tools", "resent")


async def get_summary(proxy: RunningProxy, since: float = 0.0) -> models.Summary:
    """Return the figures of the sessions that started since a time."""

    def count_sessions(store: SessionHistoryPort) -> tuple[int, int]:
        return store.count_sessions(since)[1], store.count_sessions()[1]

    figures = await proxy.queries.figures(since)
    active, _ = await proxy.queries.ask("active sessions", lambda store: store.count_sessions())
    in_time, stored = await proxy.queries.ask_since(since, ("sessions", since), count_sessions)
    tools = tool_statistics(figures, await proxy.loop.look(proxy.live_tools))
    known, used = len({each.tool for each in tools}), len({each.tool for each in tools if each.uses})
    rules = await proxy.loop.look(lambda: proxy.filtering.rules)
    usage, now, mode = figures.usage, figures.now, figures.mode
    cost, lists = cost_fields(now.cost), list_figures(now.lists)
    mean_shown, mean_available = _get_means(now.lists)
    return models.Summary(
        since=since,
        mode=mode,
        verdict=judge_figures(figures, rules, stored=stored),
        sessions=models.SessionTotals(active=active, total=usage.sessions, in_time=in_time, stored=stored),
        calls=usage.calls,
        failures=usage.failures,
        price=models.PriceTotals(
            mode=mode, sessions=cost["sessions"], of_no_proxy=cost["price"], of_host_search=cost["price_of_search"]
        ),
        hit_rate=models.HitRate(**hit_figures(now.judged)),
        lists=models.ListTotals(
            shown=lists["lists"],
            changes=lists["changes"],
            hinted=sum(each.surface == Surface.HINTS for each in now.lists),
            mean_shown=mean_shown,
            mean_available=mean_available,
        ),
        tokens=models.TokenTotals(mode=mode, **{name: lists[f"tokens_{name}"] for name in _TOKENS}),
        records=models.RecordTotals.model_validate(proxy.recorder.counts()),
        tools=models.ToolTotals(known=known, used=used, never_used=known - used),
        searches=list_figures(figures.lists)["searches"],
    )


async def get_series(
    proxy: RunningProxy,
    *,
    since: float | None = None,
    until: float | None = None,
    buckets: int = 60,
    sessions_since: float | None = None,
    tool: str | None = None,
) -> models.Series:
    """Return what happened from `since` until `until`; by default until now, and for a day.

    Sessions count that started since `sessions_since`, by default since `since`. A time without length has no buckets.
    With `tool`, only its calls count.
    """
    end = time.time() if until is None else until
    start = max(end - DAY_SECONDS, 0.0) if since is None else since
    if start >= end:
        return models.Series(buckets=())
    figures = await proxy.queries.figures(start if sessions_since is None else sessions_since)
    seconds = (end - start) / buckets
    calls, lists = defaultdict[int, list[TrainingCall]](list), defaultdict[int, list[ListObservation]](list)
    for _, call in figures.calls:
        if start <= call.timestamp < end and tool in (None, call.tool):
            calls[min(int((call.timestamp - start) / seconds), buckets - 1)].append(call)
    for shown in figures.now.lists:
        if start <= shown.at < end:
            lists[min(int((shown.at - start) / seconds), buckets - 1)].append(shown)
    found = (_to_bucket(start + place * seconds, seconds, calls[place], lists[place]) for place in range(buckets))
    return models.Series(buckets=tuple(found))


async def get_session_clusters(proxy: RunningProxy, limit: int = 20) -> models.SessionClusters:
    """Return the `limit` most frequent kinds of work among the latest sessions."""
    found = await proxy.queries.ask("clusters", _cluster_sessions)
    return found.model_copy(update={"clusters": found.clusters[:limit]})


def _cluster_sessions(store: AnalyticsPort) -> models.SessionClusters:
    from riglm.domain import session_clusters as domain  # noqa: PLC0415  # numpy takes a tenth of a second to import

    recorded = store.list_training_sessions(domain.MAX_CLUSTERED_SESSIONS)
    contexts = store.get_context_vectors([session.id for session in recorded])
    profiles = [
        domain.SessionProfile(
            calls=[domain.ClusteredCall(call.tool, call.upstream) for call in session.successes],
            context=contexts.get(session.id),
        )
        for session in recorded
    ]
    found = domain.describe_clusters(profiles, domain.cluster_sessions(profiles))
    return models.SessionClusters(sessions=len(profiles), total=len(found), clusters=tuple(found))


def _to_bucket(
    at: float, seconds: float, calls: Sequence[TrainingCall], lists: Sequence[ListObservation]
) -> models.Bucket:
    shown, available = _get_means(lists)
    return models.Bucket(
        at=at,
        seconds=seconds,
        calls=len(calls),
        failures=sum(not call.success for call in calls),
        **Counter(call.found.value for call in calls),
        lists=len(lists),
        mean_shown=shown,
        mean_available=available,
    )


def _get_means(lists: Sequence[ListObservation]) -> tuple[float | None, float | None]:
    """Return the mean numbers of tools shown and available; None without lists."""
    return (fmean(each.shown for each in lists), fmean(each.available for each in lists)) if lists else (None, None)


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
    named = {each.tool: {"upstream": live.get(each.tool, "")} for each in found if not each.invocations}
    return [each.model_copy(update=named.get(each.tool)) for each in found]


async def get_tool(proxy: RunningProxy, name: str, *, since: float = 0.0) -> models.ToolDetail:
    """Return one tool, over all servers that had it; its series begins shortly before its first call.

    Raises:
        NotFoundError: it was neither used nor listed.
    """
    entries = [each for each in await find_tools(proxy, since) if each.tool == name]
    if not entries:
        raise NotFoundError("there is no tool of this name: none was used or listed in the sessions that count")
    figures = await proxy.queries.figures(since)
    entry = entries[0] if len(entries) == 1 else tool_totals(figures, name)
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
    raw = await proxy.loop.look(lambda: proxy.parts.definition(name))
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
    await proxy.loop.look(lambda: proxy.parts.pins.read(pins))
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
