"""Traces by OpenTelemetry, exported over OTLP by a separate thread."""

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import NoOpTracer, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace import Span as SdkSpan
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from riglm.ports.telemetry import Span, TracerPort

CLOSE_SECONDS: Final = 2.0
"""What is not exported by then is lost: the end waits no longer for it."""

_log: Final = logging.getLogger("riglm.tracing")
_sdk_log: Final = logging.getLogger("opentelemetry")
_context: Final = TraceContextTextMapPropagator()
_NAME: Final = "riglm"
_SPOKEN: Final = "http/protobuf"
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class OpenTelemetryTracer(TracerPort):
    """Makes spans of OpenTelemetry's SDK; its sampler, batches and exporter are as the standard's variables say."""

    def __init__(
        self, version: Callable[[], str], make_exporter: Callable[[], SpanExporter] = OTLPSpanExporter
    ) -> None:
        """Nothing is started before it is entered."""
        self._version = version
        self._make_exporter = make_exporter
        self._export_log = _ExportLog(logging.WARNING)
        self._provider: TracerProvider | None = None
        self._tracer: Tracer = NoOpTracer()

    def __enter__(self) -> Self:
        asked_for = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), _SPOKEN)
        if asked_for != _SPOKEN:
            _log.warning("spans are sent by %s, not by %s: see that the endpoint takes it", _SPOKEN, asked_for)
        _sdk_log.addHandler(self._export_log)
        _sdk_log.propagate = False
        exporter = _LoggedOnce(self._make_exporter(), self._export_log)
        self._provider = TracerProvider(resource=_resource(self._version()), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(_NAME, self._version())
        return self

    def __exit__(self, *_: object) -> None:
        provider, self._provider, self._tracer = self._provider, None, NoOpTracer()
        if provider is not None:
            closing = threading.Thread(target=provider.shutdown, name="riglm-tracing-end", daemon=True)
            closing.start()
            closing.join(CLOSE_SECONDS)
        _sdk_log.removeHandler(self._export_log)
        _sdk_log.propagate = True

    def served(self, name: str, attributes: Mapping[str, str], carrier: Mapping[str, str]) -> Span:
        parent = _context.extract(carrier) if carrier else None
        return _Traced(self._tracer.start_span(name, parent, SpanKind.SERVER, dict(attributes)))

    def asked(self, name: str, attributes: Mapping[str, str], within: Span | None) -> Span:
        parent = set_span_in_context(within.span) if isinstance(within, _Traced) else None
        return _Traced(self._tracer.start_span(name, parent, SpanKind.CLIENT, dict(attributes)))


class _Traced(Span):
    """A span of the SDK; one that was ended takes nothing more."""

    __slots__ = ("span",)

    def __init__(self, span: SdkSpan) -> None:
        self.span = span

    def carrier(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        _context.inject(found, set_span_in_context(self.span))
        return found

    def ended(self, error: str | None = None, code: int | None = None) -> None:
        if not self.span.is_recording():
            return
        if error is not None:
            self.span.set_attribute("error.type", error)
            self.span.set_status(Status(StatusCode.ERROR))
        if code is not None:
            self.span.set_attribute("rpc.response.status_code", str(code))
        self.span.end()


class _ExportLog(logging.Handler):
    """Keeps the last message that OpenTelemetry logs, which is about a failed export, to log it once."""

    message = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.message = record.getMessage()


class _LoggedOnce(SpanExporter):
    """An exporter whose failures are logged once, until it succeeds again."""

    def __init__(self, exporter: SpanExporter, log: _ExportLog) -> None:
        self._exporter = exporter
        self._log = log
        self._has_failed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export; no failure is raised."""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001  # no failure may end the thread or fill the log
            self._log.message = f"{type(error).__name__}: {error}"
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS and self._has_failed:
            _log.info("spans are exported again")
        elif result is not SpanExportResult.SUCCESS and not self._has_failed:
            words = "spans cannot be exported, and are lost until they can: %s; this is logged once"
            _log.warning(words, self._log.message or "the exporter gives no reason")
        self._has_failed = result is not SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        """End it."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Pass it on."""
        return self._exporter.force_flush(timeout_millis)


def _resource(version: str) -> Resource:
    """Return the attributes of this process; the standard's variables win."""
    named = OTELResourceDetector().detect().attributes
    own = {"service.name": _NAME, "service.version": version}
    return Resource.create({name: value for name, value in own.items() if name not in named})
