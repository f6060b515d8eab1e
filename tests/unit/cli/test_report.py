"""`riglm report`."""

import json
import os
import stat
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.cli import main as entrance
from riglm.cli.main import app
from riglm.domain.exposure import Exposure
from riglm.domain.session import IdentificationMethod
from tests.records import a_session, an_exposure, an_invocation
from tests.unit.application.reports.shadowed import TOOLS, worked

KINDS = ("--predictor", "cooccurrence", "--predictor", "frequency")
TIMES = {"p50_ms", "p99_ms"}
"""What differs from one walk to the next."""


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Puts records into the store of the configuration; asks riglm."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data").mkdir()

    def recorded(records=()):
        url = os.environ.get("RIGLM_STORAGE__URL", f"sqlite:///{tmp_path / 'data' / 'riglm.db'}")
        with SqlAnalytics(url) as store:
            store.record_many(list(records))
        return ask

    def ask(*words):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        return done.stdout

    return recorded


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_report_has_the_numbers_of_evaluate(recorded, kind, request, monkeypatch):
    if kind == "postgresql":
        monkeypatch.setenv("RIGLM_STORAGE__URL", request.getfixturevalue("postgres_url"))
    ask, window = recorded(worked(30)), ("--since", "2026-09-26T00:00:30")
    evaluated = json.loads(ask("evaluate", *KINDS, *window, "--json"))["strategies"]
    report = json.loads(ask("report", *KINDS, *window, "--json"))
    assert len(evaluated) == len(report["strategies"]) == 2
    for expected, found in zip(evaluated, report["strategies"], strict=True):
        assert {key: found[key] for key in expected.keys() - TIMES} == {
            key: expected[key] for key in expected.keys() - TIMES
        }
        assert 0 < expected["sessions"] <= 30
    first = evaluated[0]
    assert sum(day["calls"] for day in report["days"]) == first["calls"]
    assert sum(tool["missed"] for tool in report["tools"]["missed"]) == round(
        first["calls"] * (1 - first["hit_rate"] / 100)
    )


def test_what_shadow_mode_recorded_stands_beside_the_walk_and_makes_the_verdict(recorded):
    report = json.loads(recorded(worked(100))("report", "--predictor", "frequency", "--json"))
    shadow = report["record"]["shadow"]
    assert report["record"]["enforce"] is None
    assert (shadow["sessions"], shadow["lists"], shadow["changes"]) == (100, 100, 0)
    assert shadow["missed"] == sum(day["recorded"]["missed"] for day in report["days"])
    assert shadow["tokens_net"] == shadow["tokens_hidden"] - shadow["tokens_meta_tools"] - shadow["tokens_resent"]
    assert shadow["tokens_net"] == sum(day["recorded"]["tokens_net"] for day in report["days"])
    assert shadow["cost"]["sessions"] == 100
    assert 0 < shadow["cost"]["price"] < 1
    assert report["rules"]["mode"] == "shadow"
    assert report["verdict"]["code"] == "worth_it"
    assert report["tools"]["never_used"]


def test_one_session_in_shadow_mode_decides_nothing_however_many_calls_it_had(recorded):
    off = [replace(each, mode="off") if isinstance(each, Exposure) else each for each in worked(30)]
    shadow = a_session(started_at=1_790_950_000.0, tools_available=TOOLS)
    short = an_exposure(shadow, *TOOLS[1:], hidden=TOOLS[:1], mode="shadow", surface="dynamic", tokens_shown=9_000)
    calls = [an_invocation(shadow, TOOLS[0], timestamp=shadow.started_at + at) for at in range(1, 121)]
    report = json.loads(recorded([*off, shadow, short, *calls])("report", "--predictor", "frequency", "--json"))
    reasons = {reason["name"]: reason for reason in report["verdict"]["reasons"]}
    assert report["record"]["shadow"]["hit_rate"] == 0
    assert (reasons["sessions"]["met"], reasons["price"]["met"]) == (False, None)


def test_the_terminal_shows_the_verdict_a_plot_by_day_the_strategies_and_the_tools(recorded, monkeypatch):
    monkeypatch.setenv("RIGLM_PREDICTOR__KIND", "frequency")
    shown = recorded(worked(100))("report", "--predictor", "frequency", "--tools", "3")
    assert "Worth switching on: `riglm enforce`." in shown
    assert "What shadow mode recorded" in shown
    bars = [line for line in shown.splitlines() if "━" in line]
    assert len(bars) >= 10
    assert "frequency *" in shown
    assert "one call more" in shown
    assert "100 sessions, " in shown
    assert "price: 0.70 of no proxy" in shown
    assert "coding agents: 0.88 of no proxy" in shown
    assert "Never used, of the tools that were shown: " in shown


def test_a_day_without_a_list_that_hid_something_has_no_hit_rate(recorded):
    """A list of all tools never misses one."""
    session = a_session(started_at=1.0, tools_available=TOOLS[:3])
    listed = an_exposure(session, *TOOLS[:3], timestamp=1.0, mode="shadow")
    report = json.loads(recorded([session, listed, an_invocation(session, TOOLS[0])])("report", "--json"))
    (day,) = report["days"]
    assert day["calls"] == 1
    assert day["hit_rate"] is day["new_hit_rate"] is day["hit_rate_interval"] is None


def test_a_fresh_store_gives_a_message_that_helps(recorded, tmp_path):
    ask = recorded()
    assert "riglm init" in ask("report")
    empty = json.loads(ask("report", "--json"))
    assert empty["verdict"]["code"] == "empty"
    assert (empty["strategies"], empty["days"], empty["record"]) == ([], [], {"shadow": None, "enforce": None})
    page = tmp_path / "report.html"
    before = os.umask(0)
    try:
        ask("report", "--html", str(page))
    finally:
        os.umask(before)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert "No verdict yet: no session is recorded." in page.read_text()


def test_sessions_that_were_shown_no_list_are_history_and_nothing_to_judge(recorded):
    session = a_session(method=IdentificationMethod.CONNECTION, started_at=1.0)
    report = json.loads(recorded([session, an_invocation(session, "read")])("report", "--json"))
    assert report["verdict"]["code"] == "empty"
    assert "1 session used a tool without a complete list" in report["verdict"]["text"]


def test_the_page_stands_alone_and_no_name_in_it_becomes_markup(recorded, tmp_path):
    records = worked(30)
    session = a_session(started_at=1_790_000_000.0)
    evil = "</script><img src=x onerror=alert(1)>"
    shown = an_exposure(session, "read", hidden=(evil,), mode="shadow", surface="dynamic")
    records += [session, shown, an_invocation(session, evil, timestamp=1_790_000_500.0)]
    recorded(records)("report", "--predictor", "frequency", "--html", str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    assert "default-src 'none'" in page
    assert page.count("</script>") == page.count("<script") == 3
    assert evil not in page
    assert json.dumps(evil).replace("<", "\\u003c") in page
    assert "<script src" not in page
    assert 'href="http' not in page
    assert "Apache License" in page


@pytest.mark.parametrize(
    "wrong", [("--days", "0"), ("--days", "3", "--since", "2026-01-01"), ("--since", "soon"), ("--predictor", "oracle")]
)
def test_options_that_mean_nothing_are_wrong_use(recorded, wrong):
    recorded()
    assert CliRunner().invoke(app, ["report", *wrong]).exit_code == 2


def test_a_page_that_cannot_be_written_is_wrong_use_and_named(recorded, tmp_path, monkeypatch, capsys):
    recorded()
    monkeypatch.setattr(sys, "argv", ["riglm", "report", "--html", str(tmp_path / "none" / "x.html")])
    with pytest.raises(SystemExit) as left:
        entrance.main()
    assert left.value.code == 2
    assert "--html" in capsys.readouterr().err


def test_the_mode_is_off_without_a_strategy(recorded, monkeypatch):
    monkeypatch.setenv("RIGLM_FILTERING__MODE", "enforce")
    monkeypatch.setenv("RIGLM_FILTERING__STRATEGY", "none")
    rules = json.loads(recorded(worked(2))("report", "--predictor", "frequency", "--json"))["rules"]
    assert (rules["mode"], rules["strategy"]) == ("off", "none")
