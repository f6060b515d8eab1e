"""The control service, put together from the parts of a proxy at work."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from riglm.application.control.counting import COUNTING_SECONDS, Counting
from riglm.application.control.crossing import ProxyLoop, StoreThread
from riglm.application.control.health import Doctor, Identity, Looks
from riglm.application.control.history import History
from riglm.application.control.predictions import Predictions
from riglm.application.control.service import ControlService, Desks
from riglm.application.control.sessions import Sessions
from riglm.application.control.statistics import Statistics
from riglm.application.control.steering import Steering
from riglm.application.control.tool_use import ToolUse
from riglm.application.filtering.overrides import Overrides
from riglm.application.filtering.service import FilteringService
from riglm.application.forwarding.services import Services
from riglm.application.prediction.service import PredictionService
from riglm.application.recording.recorder import Recorder
from riglm.domain.upstream import UpstreamHealth
from riglm.ports.analytics import AnalyticsPort
from riglm.ports.control import LiveConfigurationPort


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """The parts of a proxy that people look at and steer."""

    services: Services
    filtering: FilteringService
    prediction: PredictionService
    overrides: Overrides
    recorder: Recorder
    configuration: LiveConfigurationPort
    upstreams: Callable[[], list[UpstreamHealth]]


def build_control(proxy: Proxy, identity: Identity, open_store: Callable[[], AnalyticsPort]) -> ControlService:
    """A service for a proxy that runs on this event loop; `open_store` gives a store that is not open."""
    loop = ProxyLoop(asyncio.get_running_loop())
    at_hand = StoreThread(open_store, "riglm-control-store")
    aside = StoreThread(open_store, "riglm-control-counting", patience=COUNTING_SECONDS)
    stores = (at_hand, aside)
    counting = Counting(aside)
    history = History(counting)
    registry = proxy.services.sessions

    def live_tools() -> Mapping[str, str]:
        return _live_tools(proxy.services)

    tools = ToolUse(loop, counting, history, live_tools)
    looks = Looks(
        upstreams=proxy.upstreams,
        tool_counts=lambda: _tool_counts(proxy.services),
        records=proxy.recorder.counts,
        is_store_failing=lambda: proxy.recorder.is_failing,
        embedder=proxy.prediction.status,
    )
    desks = Desks(
        sessions=Sessions(loop, at_hand, registry),
        predictions=Predictions(loop, at_hand, registry, proxy.filtering),
        tools=tools,
        history=history,
        statistics=Statistics(counting, tools, proxy.recorder.counts, lambda: proxy.filtering.prices),
        steering=Steering(loop, at_hand, registry, proxy.overrides, live_tools),
        doctor=Doctor(loop, stores, identity, looks),
        configuration=proxy.configuration,
    )
    return ControlService(loop, stores, desks)


def _live_tools(services: Services) -> Mapping[str, str]:
    """The tools that are listed now by the names that clients use, each with its server."""
    only = services.owners.only
    return dict.fromkeys(services.catalogues.of(only).names, only) if only else services.owners.servers()


def _tool_counts(services: Services) -> Mapping[str, int]:
    """How many tools each server listed last."""
    if services.owners.only:
        return services.catalogues.counts()
    servers = list(services.owners.servers().values())
    return {server: servers.count(server) for server in set(servers)}
