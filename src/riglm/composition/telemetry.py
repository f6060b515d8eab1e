"""What counts and what traces, where it is wanted."""

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from riglm.application.forwarding.overhead import Overhead
from riglm.application.identity import server_info
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import Settings

if TYPE_CHECKING:
    from riglm.adapters.telemetry.metrics import PrometheusMetrics
    from riglm.adapters.telemetry.tracing import OpenTelemetryTracer
    from riglm.application.tracing.traces import Traces
    from riglm.ports.telemetry import MeterPort, TracerPort

_OTLP_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_log: Final = logging.getLogger("riglm")


def make_metrics(settings: Settings) -> "PrometheusMetrics | None":
    """What is counted for the control API, if that is on."""
    if not settings.control.enabled:
        return None
    from riglm.adapters.telemetry.metrics import PrometheusMetrics

    names = [spec.name for spec in settings.upstream_specs()]
    return PrometheusMetrics(names, lambda: server_info()["version"])


def make_overhead(meter: "MeterPort | None") -> Overhead | None:
    """What measures riglm itself, for whoever counts."""
    return None if meter is None else Overhead(meter)


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


def make_traces(tracer: "TracerPort | None") -> "Traces | None":
    """What traces requests, for whoever makes spans."""
    if tracer is None:
        return None
    from riglm.application.tracing.traces import Traces

    return Traces(tracer)
