"""`riglm evaluate`: prices of recorded sessions, and replays by strategy."""

import json

import pytest
from typer.testing import CliRunner

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.cli.main import app
from riglm.domain.invocation import DiscoveryMethod
from tests.records import a_session, an_exposure, an_invocation


def evaluate(*arguments):
    return CliRunner().invoke(app, ["evaluate", *arguments])


def recorded(*arguments):
    done = evaluate("--json", "--predictor", "frequency", *arguments)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["recorded"]


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An open store in the data directory of riglm."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "recorded"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "recorded").mkdir()
    with SqlAnalytics(f"sqlite:///{tmp_path / 'recorded' / 'riglm.db'}") as opened:
        yield opened


def test_without_a_store_there_is_nothing_to_compare(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "data"))
    assert "nothing recorded yet" in evaluate().stdout
    assert json.loads(evaluate("--json").stdout) == {"recorded": [], "strategies": []}


def test_recorded_sessions_are_priced_by_mode(store):
    session, shadowed = a_session(), a_session(started_at=2000.0)
    short = {"hidden": ("b", "c", "d"), "tokens_shown": 1_200, "tokens_hidden": 3_000, "tokens_own": 200}
    store.record_many(
        [
            session,
            an_exposure(session, "a", mode="enforce", surface="dynamic", **short),
            an_invocation(session, "a", found=DiscoveryMethod.LISTED),
            shadowed,
            an_exposure(shadowed, "a", mode="shadow", surface="dynamic", **short),
            an_invocation(shadowed, "b", found=DiscoveryMethod.LISTED),
        ]
    )
    rows = recorded()
    assert [(row["mode"], row["arm"]) for row in rows[:3]] == [
        ("enforce", "no_proxy"),
        ("enforce", "host_search"),
        ("enforce", "riglm"),
    ]
    assert rows[2]["price"] == round(11_082.5 / 14_862.5, 3)
    assert [(row["requests"], row["first_list"], row["listed"]) for row in (rows[2], rows[5])] == [
        (2.0, 1.0, 100.0),
        (3.0, 1.0, 0.0),
    ]
    assert json.loads(CliRunner().invoke(app, ["stats", "--json"]).stdout)["exposures"][0]["priced"] == {
        "sessions": 1,
        "price": None,  # of one session
        "price_of_search": None,
    }


def test_the_configured_prices_are_used(store, tmp_path):
    session = a_session()
    short = {"hidden": ("b",), "tokens_shown": 1_000, "tokens_hidden": 1_000}
    shown = an_exposure(session, "a", mode="enforce", surface="dynamic", **short)
    store.record_many([session, shown, an_invocation(session, "a")])
    (tmp_path / "riglm.yaml").write_text("prices: {preset: uncached, output: 0}\n")
    assert recorded()[2]["price"] == round((7_000 + 7_450) / (8_000 + 8_450), 3)
    assert recorded("--coding-agent")[2]["price"] == round((21_000 + 23_000) / (22_000 + 24_000), 3)


@pytest.mark.parametrize(
    "wrong", [("--limit", "0"), ("--days", "1", "--since", "2026-01-01"), ("--predictor", "oracle"), ("--db", "none")]
)
def test_options_that_mean_nothing_are_refused(store, wrong):
    assert evaluate(*wrong).exit_code != 0


def test_an_unknown_predictor_is_refused_with_the_known_ones(store):
    done = evaluate("--predictor", "oracle")
    assert done.exit_code == 2
    assert "hybrid" in done.stderr
