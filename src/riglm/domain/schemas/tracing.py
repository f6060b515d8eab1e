"""The configuration of traces."""

from pydantic import Field

from riglm.domain.schemas.base import Section


class Tracing(Section):
    """Traces of requests by OpenTelemetry, sent over OTLP to where the standard's `OTEL_...` variables say."""

    enabled: bool | None = Field(
        default=None,
        description="Make a span of each request of a client and of each to a server. By default only where "
        "`OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set.",
    )
