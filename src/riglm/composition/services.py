"""Session recognition, shared state, telemetry and the inner voice."""

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from riglm.application.forwarding.proxied_request import OverheadMeter
from riglm.application.identity import server_info
from riglm.application.recording.call_recording import CallRecordingService
from riglm.application.sessions.registry import IdentificationSettings, SessionRegistry
from riglm.composition.storage import is_silent, stands_in_the_way
from riglm.domain.errors import ConfigurationError
from riglm.domain.hashing import KeyedHasher
from riglm.domain.schemas.filtering import KnowledgeSettings
from riglm.domain.schemas.settings import Settings

if TYPE_CHECKING:
    from riglm.adapters.telemetry.metrics import PrometheusMetrics
    from riglm.adapters.telemetry.tracing import OpenTelemetryTracer
    from riglm.application.filtering.service import FilteringService
    from riglm.application.knowledge.inner_voice import InnerVoice
    from riglm.application.session_sharing.service import SessionSharingService
    from riglm.application.worker import Worker
    from riglm.ports.embedder import Embedders
    from riglm.ports.knowledge import KnowledgePort
    from riglm.ports.session_state import SessionStatePort
    from riglm.ports.telemetry import MeterPort


_log: Final = logging.getLogger("riglm")


def evidence(settings: Settings) -> IdentificationSettings:
    """Return the settings by which sessions are identified."""
    sessions = settings.sessions
    return IdentificationSettings(
        meta_keys=sessions.meta_keys,
        environment_keys=sessions.environment_keys,
        environment=os.environ,
        idle_gap=sessions.idle_gap,
        most_kept=settings.downstream.max_sessions,
        profile=settings.filtering.profile,
    )


def make_state(settings: Settings) -> "SessionStatePort":
    """What processes share of their sessions."""
    try:
        from riglm.adapters.state.redis import RedisSessionState
    except ModuleNotFoundError as error:
        words = "state.kind: the client of Redis is not installed — fix: pip install 'riglm[redis]'"
        raise ConfigurationError(words) from error
    chosen = settings.state
    url = chosen.url.get_secret_value() if chosen.url else ""
    return RedisSessionState(url, prefix=chosen.prefix, deadline=chosen.deadline)


def make_sharing(
    settings: Settings,
    state: "SessionStatePort",
    hasher: KeyedHasher,
    sessions: SessionRegistry,
    tracking: CallRecordingService,
    filtering: "Callable[[], FilteringService]",
) -> "SessionSharingService":
    """What keeps it, and asks for it."""
    from riglm.application.session_sharing.service import build_sharing

    idle = settings.downstream.session_idle
    return build_sharing(
        state,
        hasher.derived_key("shared state"),
        sessions,
        tracking,
        filtering() if stands_in_the_way(settings) else None,
        link_seconds=idle,
        session_seconds=max(settings.sessions.idle_gap, idle),
    )


_OTLP_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def make_metrics(settings: Settings) -> "PrometheusMetrics | None":
    """What is counted for the control API, if that is on."""
    if not settings.control.enabled:
        return None
    from riglm.adapters.telemetry.metrics import PrometheusMetrics

    names = [spec.name for spec in settings.upstream_specs()]
    return PrometheusMetrics(names, lambda: server_info()["version"])


def make_overhead(meter: "MeterPort | None") -> OverheadMeter | None:
    """Return the meter of riglm's overhead, if metrics are enabled."""
    return None if meter is None else OverheadMeter(meter)


def _wants_traces(settings: Settings, environment: Mapping[str, str]) -> bool:
    """Whether spans are wanted: the standard's variables can switch them off, and on where nothing is configured."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    named = any(environment.get(name) for name in _OTLP_ENDPOINTS)
    return named if settings.tracing.enabled is None else settings.tracing.enabled


def make_tracer(settings: Settings) -> "OpenTelemetryTracer | None":
    """What makes spans, if any are wanted."""
    if not _wants_traces(settings, os.environ):
        return None
    try:
        from riglm.adapters.telemetry.tracing import OpenTelemetryTracer
    except ModuleNotFoundError as error:
        words = "OpenTelemetry is not installed — fix: pip install 'riglm[otel]'"
        if settings.tracing.enabled:
            raise ConfigurationError(f"tracing.enabled: {words}") from error
        _log.warning("OTEL_EXPORTER_OTLP_ENDPOINT is set, but %s, or set tracing.enabled: false", words)
        return None
    return OpenTelemetryTracer(lambda: server_info()["version"])


def make_voice(
    settings: Settings,
    worker: "Worker",
    embedders: "Callable[[], Embedders]",
    create_knowledge: "Callable[[], KnowledgePort]",
) -> "InnerVoice | None":
    """The tool that asks the knowledge store, if it is switched on."""
    if not settings.knowledge.enabled:
        return None
    from riglm.application.knowledge.inner_voice import build_inner_voice

    return build_inner_voice(settings.knowledge, worker, embedders, create_knowledge, is_silent=is_silent())


def going_by(voice: "InnerVoice") -> Callable[[KnowledgeSettings], None]:
    """Takes what of the settings may change while the tool is there."""
    from riglm.application.knowledge.inner_voice import bounds_of, defaults_of

    return lambda knowledge: voice.go_by(defaults_of(knowledge), bounds_of(knowledge))
