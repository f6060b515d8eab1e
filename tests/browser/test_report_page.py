"""The page of `riglm report`, in a browser."""

import json
from dataclasses import replace

import pytest

from riglm.adapters.control.dashboard import ASSETS
from riglm.adapters.prediction.usage_statistics import FrequencyPredictor
from riglm.adapters.reports import page as page_of
from riglm.application.prediction.prediction_settings import Strategy
from riglm.application.reports.figures import read_figures
from riglm.application.reports.report import build_report
from riglm.application.reports.session_replay import replay_history
from riglm.domain.list_plan import Prices
from riglm.domain.schemas.settings import Settings
from tests.browser.accessibility import find_violations
from tests.browser.window import Window
from tests.records import a_token_usage
from tests.stores.memory import InMemoryAnalytics
from tests.unit.application.reports.shadowed import worked

CHARTS = "vendor/echarts/echarts.common.min.js"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_page(tmp_path_factory.mktemp("report") / "report.html", 40)


def write_page(made, sessions):
    """Write the page as a file, made of this many sessions; return its path."""
    settings = Settings.model_validate({"predictor": {"kind": "frequency"}})
    with InMemoryAnalytics() as store:
        store.record_many([*worked(sessions), a_token_usage(client="editor", first_prompt=12_345, requests=1)])
        history = store.list_training_sessions()
        record = read_figures(store, Prices())
    usage = replace(record.usage, known=record.usage.known | {"never<b>used"})
    strategy = Strategy(name="frequency", key="frequency", make=FrequencyPredictor)
    replay = replay_history(history, strategy, settings.filtering, Prices(), {})
    report = build_report(
        settings,
        replace(record, usage=usage),
        {"frequency": replay},
        lambda at: f"day {int(at // 86_400)}",
        stored=len(history),
        skipped=0,
        since=0.0,
        until=1_790_900_000.0,
    )
    found = {**report, "until": "2026-10-02T00:00:00+00:00"}
    made.write_text(page_of(json.loads(json.dumps(found)), (ASSETS / CHARTS).read_text("utf-8"), ["a licence"]))
    return made


def test_the_report_s_page_shows_all_without_a_complaint_and_asks_no_host(stranger: Window, file):
    stranger.open(file.as_uri())
    shown = stranger.run("return document.body.innerText")
    assert "40 sessions with 289 calls" in shown
    assert "What shadow mode recorded" in shown
    assert "coding agents: " in shown
    assert "3,345" in shown  # without the tool list
    assert "never<b>used" in shown
    assert stranger.run("return document.querySelectorAll('#chart canvas').length") == 1
    assert stranger.run("return document.querySelectorAll('main section').length") >= 5
    assert find_violations(stranger) == []
    assert stranger.rate_limited_log() == []
    assert not any(stranger.hosts())


def test_report_page_of_one_session_has_words_instead_of_a_chart_and_of_a_comparison(stranger: Window, tmp_path):
    stranger.open(write_page(tmp_path / "report.html", 1).as_uri())
    shown = stranger.text()
    assert "No verdict yet: it takes 19 more sessions" in shown
    assert "it takes 2 sessions with calls (1 session)" in shown
    assert "A chart is drawn from the second day on." in shown
    assert "Replayed by strategy" not in shown
    assert stranger.run("return document.querySelectorAll('canvas').length") == 0
    assert find_violations(stranger) == []
    assert stranger.rate_limited_log() == []


def test_report_page_does_not_break_words_on_a_narrow_screen(stranger: Window, file):
    stranger.size(390, 800)
    stranger.open(file.as_uri())
    assert stranger.run("return document.documentElement.scrollWidth") <= 390
    assert stranger.run(_NARROWEST) >= 140
    assert find_violations(stranger, "light") == []


_NARROWEST = """
const shown = [...document.querySelectorAll("td.name")].filter((cell) => cell.checkVisibility());
return Math.min(...shown.map((cell) => cell.getBoundingClientRect().width));
"""
