"""What follows a changed configuration, and the endpoint of the control API."""

import logging
import os
import socket
from typing import TYPE_CHECKING, Final, NamedTuple

from riglm.adapters.configuration.loading import Configuration, data_directory
from riglm.adapters.telemetry.logs import JsonLogs
from riglm.composition.prediction import build_predictor, plan_of
from riglm.composition.storage import session_evidence
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import Settings

if TYPE_CHECKING:
    from riglm.adapters.control.tokens import Tokens
    from riglm.application.control.configuration import ReloadHandler
    from riglm.composition.container import Container

_log: Final = logging.getLogger("riglm")


def reload_handlers(container: "Container", read: Configuration, logs: JsonLogs | None) -> "list[ReloadHandler]":
    """Return what applies changed settings to the parts of a process."""
    from riglm.application.control.configuration import (
        FilteringReloadHandler,
        PredictionReloadHandler,
        ValueReloadHandler,
    )
    from riglm.application.knowledge.inner_voice import bounds_of, defaults_of

    filtering, showing, maintenance = container.filtering, container.showing, container.maintenance

    def learned_anew() -> None:
        filtering.rechoose()
        showing.reconfigured()

    container.prediction.on_reload(learned_anew)
    handlers: list[ReloadHandler] = [
        FilteringReloadHandler(filtering, showing.reconfigured),
        PredictionReloadHandler(container.prediction, plan_of, build_predictor),
        ValueReloadHandler(plan_of, container.warm_sets.follow),
        ValueReloadHandler(lambda new: new.arguments, container.tracking.take_arguments),
        ValueReloadHandler(session_evidence, container.sessions.look_for),
        ValueReloadHandler(lambda new: new.sessions.idle_gap, maintenance.end_idle_after),
        ValueReloadHandler(lambda new: new.retention, lambda retention: maintenance.keep(retention.expiry)),
    ]
    voice = container.voice
    if voice is not None:
        handlers.append(
            ValueReloadHandler(
                lambda new: new.knowledge, lambda knowledge: voice.go_by(defaults_of(knowledge), bounds_of(knowledge))
            )
        )
    if logs is not None:
        known = read.settings.secrets()
        handlers.append(
            ValueReloadHandler(
                lambda new: (new.logging.level, (*known, *new.secrets())), lambda given: logs.follow(*given)
            )
        )
    return handlers


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
