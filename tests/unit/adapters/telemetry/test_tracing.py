"""Spans as OpenTelemetry's SDK makes them, and what comes of them when nobody takes them."""

import logging
import os
import threading

import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind

from riglm.adapters.telemetry import tracing
from riglm.adapters.telemetry.tracing import OpenTelemetryTracer

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{CALLER}-01"


class Exporter(SpanExporter):
    """Keeps spans, or fails at them as a test tells it to."""

    def __init__(self) -> None:
        self.spans = []
        self.result = SpanExportResult.SUCCESS
        self.failure: Exception | None = None
        self.words = ""

    def export(self, spans):
        if self.words:
            logging.getLogger("opentelemetry.exporter.somewhere").error("%s", self.words)
        if self.failure is not None:
            raise self.failure
        if self.result is SpanExportResult.SUCCESS:
            self.spans += spans
        return self.result


@pytest.fixture
def exporter() -> Exporter:
    return Exporter()


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def made(exporter):
    return OpenTelemetryTracer(lambda: "1.2", lambda: exporter)


def flush(tracer):
    assert tracer._provider.force_flush(10_000)


def test_a_request_goes_on_with_its_clients_trace_and_what_it_asks_is_within(exporter):
    with made(exporter) as tracer:
        served = tracer.served("tools/call", {"a": "b"}, {"traceparent": PARENT, "tracestate": "v=1"})
        asked = tracer.asked("tools/call", {}, served)
        asked.ended()
        served.ended("tool_error")
        told = asked.carrier()
    inner, outer = exporter.spans
    assert (outer.kind, inner.kind) == (SpanKind.SERVER, SpanKind.CLIENT)
    assert f"{outer.context.trace_id:032x}" == f"{inner.context.trace_id:032x}" == TRACE
    assert f"{outer.parent.span_id:016x}" == CALLER
    assert inner.parent.span_id == outer.context.span_id
    assert told == {"traceparent": f"00-{TRACE}-{inner.context.span_id:016x}-01", "tracestate": "v=1"}
    assert (outer.attributes["error.type"], outer.status.is_ok) == ("tool_error", False)
    assert inner.status.is_ok
    assert outer.resource.attributes["service.name"] == "riglm"
    assert outer.resource.attributes["service.version"] == "1.2"


@pytest.mark.parametrize(
    "carrier",
    [
        {},
        {"traceparent": "nonsense"},
        {"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-01"},
        {"tracestate": "v=1"},
    ],
)
def test_a_request_without_a_usable_trace_begins_one(exporter, carrier):
    with made(exporter) as tracer:
        tracer.served("ping", {}, carrier).ended()
    assert exporter.spans[0].parent is None


def test_the_standards_variables_name_the_service(exporter, monkeypatch):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=theirs,deployment.environment.name=test")
    with made(exporter) as tracer:
        tracer.served("ping", {}, {}).ended()
    found = exporter.spans[0].resource.attributes
    assert (found["service.name"], found["deployment.environment.name"]) == ("theirs", "test")


def test_failures_are_logged_once_until_spans_are_exported_again(exporter, caplog):
    caplog.set_level(logging.INFO, "riglm.tracing")
    exporter.result, exporter.words = SpanExportResult.FAILURE, "connection refused"
    with made(exporter) as tracer:
        for result in (SpanExportResult.FAILURE, SpanExportResult.FAILURE, SpanExportResult.SUCCESS):
            exporter.result = result
            exporter.words = "" if result is SpanExportResult.SUCCESS else exporter.words
            tracer.served("ping", {}, {}).ended()
            flush(tracer)
    said = [(record.name, record.levelname) for record in caplog.records]
    assert said == [("riglm.tracing", "WARNING"), ("riglm.tracing", "INFO")]
    assert "connection refused" in caplog.messages[0]


def test_an_exporter_that_raises_is_no_more_than_one_that_fails(exporter, caplog):
    exporter.failure = ValueError("odd")
    with made(exporter) as tracer:
        for _ in range(3):
            tracer.served("ping", {}, {}).ended()
            flush(tracer)
    assert [record.name for record in caplog.records] == ["riglm.tracing"]
    assert "ValueError: odd" in caplog.text


def test_what_is_left_is_exported_at_the_end_and_no_longer_waited_for_than_two_seconds(exporter, monkeypatch):
    with made(exporter) as tracer:
        tracer.served("ping", {}, {}).ended()
    assert len(exporter.spans) == 1
    monkeypatch.setattr(tracing, "CLOSE_SECONDS", 0.01)
    stuck, go_on = made(exporter), threading.Event()

    def hang(_):
        go_on.wait(60)
        return SpanExportResult.SUCCESS

    exporter.export = hang
    with stuck:
        stuck.served("ping", {}, {}).ended()
    assert not go_on.is_set()
    go_on.set()
