"""The running proxy as the functions of the control API read and change it, and its configuration."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from riglm.application.control.configuration import LiveConfiguration
from riglm.application.control.query_cache import QueryCache
from riglm.application.control.thread_bridge import ProxyLoop, StoreThread
from riglm.application.filtering.active_rules import Overrides
from riglm.application.filtering.filtering_service import FilteringService
from riglm.application.forwarding.services import RequestServices
from riglm.application.prediction.prediction_service import PredictionService
from riglm.application.tracking.recorder import Recorder
from riglm.domain.audit import AuditEvent, AuditLog
from riglm.domain.control import RedactedConfiguration
from riglm.domain.upstream import UpstreamHealth, UpstreamSpec
from riglm.ports.analytics import AnalyticsPort, ArchivePort

_COUNT_SECONDS: Final = 60.0
_CHANGE_SECONDS: Final = 30.0  # predictors are tried before they count


@dataclass(slots=True, kw_only=True, eq=False)
class RunningProxy:
    """A proxy on the event loop on which this is created, for functions that run on the control API's loop.

    `loop` is that of the proxy: `services`, `filtering`, `prediction`, `overrides`, `configuration` and `upstreams` are
    used there only. `store` answers what takes no time, `queries` what has to count. `open_store` creates a store that
    is not open yet, `open_archive` one that keeps records for longer than `retention_days`. `started_at` is in seconds
    since the epoch.
    """

    services: RequestServices
    filtering: FilteringService
    prediction: PredictionService
    overrides: Overrides
    recorder: Recorder
    configuration: LiveConfiguration
    upstreams: Callable[[], Sequence[UpstreamHealth]]
    specs: Sequence[UpstreamSpec]
    version: str
    started_at: float
    store_kind: str
    open_store: Callable[[], AnalyticsPort]
    open_archive: Callable[[], ArchivePort] | None = None
    retention_days: float = 0.0
    audit: AuditLog | None = None

    loop: ProxyLoop = field(init=False)
    store: StoreThread[AnalyticsPort] = field(init=False)
    queries: QueryCache = field(init=False)
    _threads: Sequence[StoreThread[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.loop = ProxyLoop(asyncio.get_running_loop())
        self.store = StoreThread(self.open_store, "riglm-control-store")
        counting = StoreThread(self.open_store, "riglm-control-counting", timeout_seconds=_COUNT_SECONDS)
        archive = None if self.open_archive is None else StoreThread(self.open_archive, "riglm-control-archive")
        self.queries = QueryCache(counting, archive, self.retention_days, lambda: self.filtering.prices)
        self._threads = (self.store, counting, *([] if archive is None else [archive]))

    @property
    def is_store_failing(self) -> bool:
        """True if a record or a query did not reach the store last time."""
        return self.recorder.is_failing or any(thread.is_failing for thread in self._threads)

    def close(self) -> None:
        """Close the stores; may be called on any thread."""
        for thread in self._threads:
            thread.close()

    def record_audit(self, event: AuditEvent, about: Mapping[str, Any]) -> None:
        """Write an event to the audit log, if there is one."""
        if self.audit is not None:
            self.audit(event, about)

    def live_tools(self) -> Mapping[str, str]:
        """Return the server of each tool that is listed now, by the name that clients use; called on the loop."""
        owners = self.services.owners
        return (
            dict.fromkeys(self.services.catalogs.of(owners.only).names, owners.only)
            if owners.only
            else owners.servers()
        )


async def get_configuration(proxy: RunningProxy) -> RedactedConfiguration:
    """Return the configuration in force, with masks in the place of secrets."""
    return await proxy.loop.look(proxy.configuration.shown)


async def put_configuration(
    proxy: RunningProxy, document: Mapping[str, Any], *, expected_version: int | None = None
) -> RedactedConfiguration:
    """Change what `document` names, as `LiveConfiguration.put` does."""
    update = await proxy.loop.ask(
        lambda: proxy.configuration.put(document, expected_version=expected_version), timeout_seconds=_CHANGE_SECONDS
    )
    about = {"sections": sorted(document), "version": update.version}
    proxy.record_audit(AuditEvent.CONFIGURATION_CHANGED, about)
    return update
