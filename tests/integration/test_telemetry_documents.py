"""The table of the metrics is current, and the dashboard asks only for what there is."""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = DOCS / "reference" / "generate_metrics.py"
DASHBOARD = json.loads((DOCS / "dashboards" / "grafana.json").read_text("utf-8"))
OF_PROCESSES = {"process_resident_memory_bytes", "process_cpu_seconds_total"}


def known() -> frozenset[str]:
    """The names of all samples that riglm gives."""
    spec = importlib.util.spec_from_file_location("generate_metrics", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    names: frozenset[str] = module.names()
    return names


def targets() -> Iterator[tuple[str, str]]:
    """Every panel's title with an expression of it."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def selectors(expression: str) -> list[tuple[str, list[str]]]:
    """The metrics that an expression names, with the labels that it matches."""
    plain = expression.replace("$__rate_interval", "5m").replace("$__range", "1h")
    found: list[tuple[str, list[str]]] = []

    def visit(part: promql_parser.Expr) -> None:
        if isinstance(part, promql_parser.VectorSelector):
            found.append((part.name or "", [matcher.name for matcher in part.matchers.matchers]))

    promql_parser.walk(promql_parser.parse(plain), visit)
    return found


def test_the_table_of_the_metrics_is_current() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("title", "expression"), list(targets()), ids=map(str, range(len(list(targets())))))
def test_every_expression_of_the_dashboard_parses_and_names_metrics_that_there_are(title: str, expression: str) -> None:
    asked = selectors(expression)
    assert asked, title
    assert {name for name, _ in asked} <= known() | OF_PROCESSES
    for _, labels in asked:
        assert "instance" in labels, "each panel is for the processes chosen"


def test_every_family_of_riglms_is_on_the_dashboard_or_left_out_on_purpose() -> None:
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known()}
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for _, text in targets() for name, _ in selectors(text)}
    left_out = {
        "riglm_sessions_total",
        "riglm_records_recovered_total",
        "riglm_tokens_shown_total",
        "riglm_upstream_state_since_timestamp_seconds",
    }
    assert families - shown == left_out
