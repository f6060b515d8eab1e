"""The choice of a tracer, made without OpenTelemetry, which is slow to import and may not be installed."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from riglm.domain.errors import ConfigurationError, missing_extra

if TYPE_CHECKING:
    from riglm.adapters.telemetry.tracing import OpenTelemetryTracer

__all__ = ["choose_tracer"]

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_MISSING: Final = missing_extra("OpenTelemetry", "otel")
_log: Final = logging.getLogger("riglm")


def choose_tracer(
    enabled: bool | None, environment: Mapping[str, str], version: Callable[[], str]
) -> "OpenTelemetryTracer | None":
    """Return the tracer if spans are `enabled`, by default if the environment names an endpoint; else None.

    The standard's variables can disable them in any case.

    Raises:
        ConfigurationError: they are enabled, and OpenTelemetry is not installed.
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    if not (any(environment.get(name) for name in _ENDPOINTS) if enabled is None else enabled):
        return None
    try:
        from riglm.adapters.telemetry.tracing import OpenTelemetryTracer  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if enabled:
            raise ConfigurationError(f"tracing.enabled: {_MISSING}") from error
        _log.warning("OTEL_EXPORTER_OTLP_ENDPOINT is set, but %s, or set tracing.enabled: false", _MISSING)
        return None
    return OpenTelemetryTracer(version)
