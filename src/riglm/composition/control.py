"""What is seen and steered while riglm runs, and the door to it."""

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from riglm.adapters.configuration.loading import Configuration, data_directory
from riglm.adapters.telemetry.logs import JsonLogs
from riglm.application.forwarding.services import RequestServices
from riglm.application.identity import server_info
from riglm.application.recording.call_recording import CallRecordingService
from riglm.application.recording.maintenance import Maintenance
from riglm.application.recording.recorder import Recorder
from riglm.application.sessions.registry import SessionRegistry
from riglm.composition.prediction import build_predictor, plan_of
from riglm.composition.services import evidence, going_by
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import Settings
from riglm.ports.analytics import AnalyticsPort
from riglm.ports.upstream import UpstreamPort

if TYPE_CHECKING:
    from riglm.adapters.control.tokens import Tokens
    from riglm.application.control.configuration import LiveConfiguration
    from riglm.application.control.service import ControlService
    from riglm.application.filter_middleware.middleware import FilterMiddleware
    from riglm.application.filtering.active_rules import Overrides
    from riglm.application.filtering.service import FilteringService
    from riglm.application.knowledge.inner_voice import InnerVoice
    from riglm.application.prediction.service import PredictionService
    from riglm.application.prediction.warm_sets import WarmSets

_log: Final = logging.getLogger("riglm")


def make_live(
    settings: Settings,
    configuration: Configuration | None,
    logs: JsonLogs | None,
    filtering: "FilteringService",
    showing: "FilterMiddleware",
    prediction: "PredictionService",
    warm_sets: "WarmSets",
    tracking: CallRecordingService,
    sessions: SessionRegistry,
    maintenance: Maintenance,
    voice: "InnerVoice | None",
) -> "LiveConfiguration":
    """The configuration that can be changed, with all that follows it."""
    from riglm.adapters.configuration.persisting import ConfigurationDocuments
    from riglm.application.control.configuration import (
        FilteringReloadHandler,
        LiveConfiguration,
        PredictionReloadHandler,
        ReloadHandler,
        ValueReloadHandler,
    )

    def learned_anew() -> None:
        filtering.rechoose()
        showing.reconfigured()

    prediction.on_reload(learned_anew)
    followers: list[ReloadHandler] = [
        FilteringReloadHandler(filtering, showing.reconfigured),
        PredictionReloadHandler(prediction, plan_of, build_predictor),
        ValueReloadHandler(
            lambda new: (new.filtering.period, new.learning.scope == "principal"),
            lambda given: warm_sets.follow(period=given[0], by_principal=given[1]),
        ),
        ValueReloadHandler(lambda new: new.arguments, tracking.take_arguments),
        ValueReloadHandler(evidence, sessions.look_for),
        ValueReloadHandler(lambda new: new.sessions.idle_gap, maintenance.end_idle_after),
        ValueReloadHandler(lambda new: new.retention, lambda retention: maintenance.keep(retention.expiry)),
    ]
    if voice is not None:
        followers.append(ValueReloadHandler(lambda new: new.knowledge, going_by(voice)))
    read = configuration or Configuration(settings, {})
    if logs is not None:
        known = read.settings.secrets()
        of_logs = ValueReloadHandler(
            lambda new: (new.logging.level, (*known, *new.secrets())), lambda given: logs.follow(*given)
        )
        followers.append(of_logs)
    return LiveConfiguration(settings, ConfigurationDocuments(read), followers)


def make_control(
    settings: Settings,
    services: RequestServices,
    filtering: "FilteringService",
    prediction: "PredictionService",
    overrides: "Overrides",
    recorder: Recorder,
    live: "LiveConfiguration",
    open_store: Callable[[], AnalyticsPort],
    upstreams: Sequence[UpstreamPort],
) -> "ControlService":
    """What the control API asks."""
    from riglm.application.control.health import ProcessInfo
    from riglm.application.control.service import Proxy, build_control

    identity = ProcessInfo(
        version=server_info()["version"],
        started_at=time.time(),
        store_kind=settings.storage.kind,
        specs=settings.upstream_specs(),
    )
    proxy = Proxy(
        services=services,
        filtering=filtering,
        prediction=prediction,
        overrides=overrides,
        recorder=recorder,
        configuration=live,
        upstreams=lambda: [upstream.health() for upstream in upstreams],
    )
    return build_control(proxy, identity, open_store)


class ControlEndpoint(NamedTuple):
    """Where the control API listens, and the tokens that open it."""

    listener: socket.socket
    tokens: "Tokens"


def door_of(settings: Settings, *, is_needed: bool) -> ControlEndpoint | None:
    """Return the control API's endpoint; None if it is off, or if it is optional and the port is in use."""
    control = settings.control
    if not control.enabled:
        return None
    from riglm.adapters.control.tokens import guarded
    from riglm.adapters.mcp.downstream.http import bound_socket

    tokens = guarded(control, data_directory(os.environ))
    try:
        listener = bound_socket(control.host, control.port, section="control", option="--control-port")
    except ConfigurationError as error:
        if is_needed:
            raise
        _log.warning("%s; riglm goes on without the control API", error)
        return None
    return ControlEndpoint(listener, tokens)
