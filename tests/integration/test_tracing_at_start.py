"""When spans are wanted, and what happens where they cannot be made."""

import logging
import os
import subprocess
import sys

import pytest

from riglm import container
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import Settings

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
OF_TRACES = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}


def settings(enabled):
    given = {} if enabled is None else {"tracing": {"enabled": enabled}}
    return Settings.model_validate({"upstream": {"command": ["cat"]}, "storage": {"kind": "memory"}, **given})


@pytest.mark.parametrize(
    ("enabled", "environment", "wanted"),
    [
        (None, {}, False),
        (None, ENDPOINT, True),
        (None, OF_TRACES, True),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        (None, {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:1"}, False),
        (True, {}, True),
        (False, ENDPOINT, False),
        (True, {**ENDPOINT, "OTEL_SDK_DISABLED": "True"}, False),
        (None, {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_spans_are_wanted_where_the_configuration_or_the_standards_variables_ask_for_them(
    monkeypatch, enabled, environment, wanted
):
    for name in {*ENDPOINT, *OF_TRACES, "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"}:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    made = container.Container(settings=settings(enabled)).tracer()
    assert (made is not None) is wanted


def test_asking_for_spans_without_opentelemetry_is_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "riglm.adapters.telemetry.tracing", None)
    with pytest.raises(ConfigurationError, match=r"tracing\.enabled.*riglm\[otel\]"):
        assert container.Container(settings=settings(enabled=True)).tracer()


def test_a_variable_alone_without_opentelemetry_costs_a_word_in_the_log(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "riglm")
    monkeypatch.setitem(sys.modules, "riglm.adapters.telemetry.tracing", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert container.Container(settings=settings(enabled=None)).tracer() is None
    assert "riglm[otel]" in caplog.text


def test_nothing_of_metrics_or_traces_is_imported_where_nobody_asked_for_them():
    look = (
        "import sys, riglm.cli.entry; from riglm.container import Container;"
        "from riglm.domain.schemas.settings import Settings;"
        "given = {'upstream': {'command': ['cat']}, 'storage': {'kind': 'memory'}};"
        "made = Container(settings=Settings.model_validate(given));"
        "made.proxy_parts(), made.metrics(), made.tracer(), made.tracking();"
        "print([name for name in sys.modules if name.split('.')[0] in ('prometheus_client', 'opentelemetry')]"
        "+ [name for name in sys.modules if name.startswith('riglm.application.tracing.')])"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RIGLM_"))}
    done = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=False, timeout=60, env=env
    )
    assert done.stdout.strip() == "[]", done.stderr
