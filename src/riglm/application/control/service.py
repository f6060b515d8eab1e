"""riglm as the control API sees it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from riglm.application.control.health import HealthService, ProcessInfo, StatusProbes
from riglm.application.control.overrides import OverrideService
from riglm.application.control.session_clusters import SessionClusterQueries
from riglm.application.control.sessions import PredictionQueries, SessionQueries
from riglm.application.control.statistics import Statistics
from riglm.application.control.thread_bridge import COUNTING_SECONDS, CachedQueries, ProxyLoop, StoreThread
from riglm.application.control.tool_changes import ToolChangeService
from riglm.application.control.tool_use import ToolQueries, UsageHistory
from riglm.application.filtering.active_rules import Overrides
from riglm.application.filtering.service import FilteringService
from riglm.application.forwarding.services import RequestServices
from riglm.application.prediction.service import PredictionService
from riglm.application.tracking.recorder import Recorder
from riglm.domain import jsonrpc
from riglm.domain.audit import AuditEvent, AuditLog
from riglm.domain.control import ConfigurationUpdate, OverrideRequest, RedactedConfiguration
from riglm.domain.policy import Override
from riglm.domain.schemas.control_api import (
    Bucket,
    CooccurrenceMap,
    Health,
    Page,
    Readiness,
    SessionClusters,
    SessionDetail,
    SessionEntry,
    SessionPrediction,
    Summary,
    ToolChangeEntry,
    ToolChanges,
    ToolDetail,
    ToolEntry,
)
from riglm.domain.upstream import UpstreamHealth
from riglm.ports.analytics import AnalyticsPort, ArchivePort
from riglm.ports.control import ControlPort, LiveConfigurationPort

CHANGING_SECONDS: Final = 30.0
"""Seconds that a change of the configuration may take: predictors are tried before they count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlHandlers:
    """The parts that answer, each for one kind of queries."""

    sessions: SessionQueries
    predictions: PredictionQueries
    tools: ToolQueries
    clusters: SessionClusterQueries
    changes: ToolChangeService
    history: UsageHistory
    statistics: Statistics
    steering: OverrideService
    doctor: HealthService
    configuration: LiveConfigurationPort


class ControlService(ControlPort):
    """Answers on the control API's event loop, which is another than the proxy's."""

    def __init__(
        self,
        proxy: ProxyLoop,
        stores: Sequence[StoreThread[Any]],
        desks: ControlHandlers,
        audit: AuditLog = lambda *_: None,
    ) -> None:
        """The configuration is asked on the proxy's loop; `stores` are closed in the end."""
        self._audit = audit
        self._proxy = proxy
        self._stores = stores
        self._desks = desks

    def close(self) -> None:
        """Ask the store nothing more; may be called by any thread."""
        for store in self._stores:
            store.close()

    async def health(self) -> Health:
        return await self._desks.doctor.health()

    async def readiness(self) -> Readiness:
        return await self._desks.doctor.readiness()

    async def configuration(self) -> RedactedConfiguration:
        return await self._proxy.look(self._desks.configuration.shown)

    async def put_configuration(
        self, document: Mapping[str, Any], *, expected_version: int | None = None, persist: bool = False
    ) -> ConfigurationUpdate:
        update = await self._proxy.ask(
            lambda: self._desks.configuration.put(document, expected_version=expected_version, persist=persist),
            timeout_seconds=CHANGING_SECONDS,
        )
        about = {"sections": sorted(document), "version": update.version, "persisted": persist}
        self._audit(AuditEvent.CONFIGURATION_CHANGED, about)
        return update

    async def sessions(
        self, *, active_only: bool = False, limit: int = 100, cursor: str | None = None
    ) -> Page[SessionEntry]:
        return await self._desks.sessions.entries(active_only=active_only, limit=limit, cursor=cursor)

    async def session(self, session_id: UUID) -> SessionDetail:
        return await self._desks.sessions.detail(session_id)

    async def prediction(self, session_id: UUID) -> SessionPrediction:
        return await self._desks.predictions.of(session_id)

    async def tools(
        self, *, unused_only: bool = False, since: float = 0.0, limit: int = 100, cursor: str | None = None
    ) -> Page[ToolEntry]:
        return await self._desks.tools.entries(unused_only=unused_only, since=since, limit=limit, cursor=cursor)

    async def tool(self, name: str, *, since: float = 0.0) -> ToolDetail:
        return await self._desks.tools.detail(name, since=since)

    async def tool_changes(self) -> ToolChanges:
        return await self._desks.changes.entries()

    async def approve_tool(self, server: str, tool: str, digest: str) -> ToolChangeEntry:
        approved = await self._desks.changes.approve(server, tool, digest)
        self._audit(AuditEvent.TOOL_APPROVED, {"upstream": server, "tool": tool, "digest": digest})
        return approved

    async def put_override(self, override_request: OverrideRequest) -> Override:
        made = await self._desks.steering.put(override_request)
        about = {"id": str(made.id), "kind": made.kind.value, "tool": made.tool, "scope": made.scope.value}
        self._audit(AuditEvent.OVERRIDE_CREATED, about | ({"key": made.key} if made.key else {}))
        return made

    async def overrides(self, *, limit: int = 100, cursor: str | None = None) -> Page[Override]:
        return await self._desks.steering.entries(limit=limit, cursor=cursor)

    async def override(self, override_id: UUID) -> Override:
        return await self._desks.steering.one(override_id)

    async def delete_override(self, override_id: UUID) -> None:
        await self._desks.steering.delete(override_id)
        self._audit(AuditEvent.OVERRIDE_DELETED, {"id": str(override_id)})

    async def embedder(self) -> Mapping[str, Any]:
        return await self._desks.doctor.embedder()

    async def summary(self, *, since: float = 0.0) -> Summary:
        return await self._desks.statistics.summary(since)

    async def series(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        buckets: int = 60,
        sessions_since: float | None = None,
    ) -> tuple[Bucket, ...]:
        return await self._desks.history.buckets(since=since, until=until, count=buckets, sessions_since=sessions_since)

    async def cooccurrence(self, *, limit: int = 30) -> CooccurrenceMap:
        return await self._desks.tools.cooccurrence(limit)

    async def session_clusters(self, *, limit: int = 20) -> SessionClusters:
        return await self._desks.clusters.entries(limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """The parts of a proxy that people look at and steer."""

    services: RequestServices
    filtering: FilteringService
    prediction: PredictionService
    overrides: Overrides
    recorder: Recorder
    configuration: LiveConfigurationPort
    upstreams: Callable[[], list[UpstreamHealth]]


def build_control(
    proxy: Proxy,
    identity: ProcessInfo,
    open_store: Callable[[], AnalyticsPort],
    audit: AuditLog | None = None,
    *,
    open_archive: Callable[[], ArchivePort] | None = None,
    retention_days: float = 0.0,
) -> ControlService:
    """A service for a proxy that runs on this event loop; `open_store` gives a store that is not open.

    `open_archive` gives one that keeps records for longer than the `retention_days` of the store.
    """
    loop = ProxyLoop(asyncio.get_running_loop())
    at_hand = StoreThread(open_store, "riglm-control-store")
    aside = StoreThread(open_store, "riglm-control-counting", timeout_seconds=COUNTING_SECONDS)
    stores = (at_hand, aside)
    archive = None if open_archive is None else StoreThread(open_archive, "riglm-control-archive")
    counting = CachedQueries(aside, archive, retention_days, prices=lambda: proxy.filtering.prices)
    history = UsageHistory(counting)
    registry = proxy.services.sessions

    def live_tools() -> Mapping[str, str]:
        return _live_tools(proxy.services)

    tools = ToolQueries(loop, counting, history, live_tools, describe=lambda name: _description(proxy.services, name))
    looks = StatusProbes(
        upstreams=proxy.upstreams,
        tool_counts=lambda: _tool_counts(proxy.services),
        records=proxy.recorder.counts,
        is_store_failing=lambda: proxy.recorder.is_failing,
        embedder=proxy.prediction.status,
        load_embedder=proxy.prediction.begin,
    )
    desks = ControlHandlers(
        sessions=SessionQueries(loop, at_hand, registry),
        predictions=PredictionQueries(loop, at_hand, registry, proxy.filtering),
        tools=tools,
        clusters=SessionClusterQueries(counting),
        changes=ToolChangeService(loop, at_hand, proxy.services.pins),
        history=history,
        statistics=Statistics(
            counting,
            tools,
            proxy.recorder.counts,
            predicts=lambda: proxy.filtering.rules.is_on and proxy.filtering.rules.strategy == "prediction",
        ),
        steering=OverrideService(
            loop, at_hand, registry, proxy.overrides, live_tools, is_filtering=lambda: proxy.filtering.rules.is_on
        ),
        doctor=HealthService(loop, stores, identity, looks),
        configuration=proxy.configuration,
    )
    return ControlService(loop, (*stores, *([] if archive is None else [archive])), desks, audit or (lambda *_: None))


def _live_tools(services: RequestServices) -> Mapping[str, str]:
    """The tools that are listed now by the names that clients use, each with its server."""
    only = services.owners.only
    return dict.fromkeys(services.catalogs.of(only).names, only) if only else services.owners.servers()


def _description(services: RequestServices, name: str) -> str | None:
    """Return the description of a tool by the name that clients use; None if it is not known."""
    raw = services.definition(name)
    return jsonrpc.text(jsonrpc.members(raw).get("description")) if raw else None


def _tool_counts(services: RequestServices) -> Mapping[str, int]:
    """How many tools each server listed last."""
    if services.owners.only:
        return services.catalogs.counts()
    servers = list(services.owners.servers().values())
    return {server: servers.count(server) for server in set(servers)}
