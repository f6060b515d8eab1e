import contextlib
import importlib.metadata
import json
import sqlite3
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from typer.testing import CliRunner

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.prediction.usage_statistics import FrequencyPredictor
from riglm.cli.main import app
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import json_schema
from riglm.ports import predictor
from riglm.ports.predictor import PREDICTORS

runner = CliRunner()


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    yaml = "mcpServers: {one: {command: sh, env: {KEY: canary}}, two: {url: 'http://h'}}\nembedder: {provider: static}"
    (tmp_path / "riglm.yaml").write_text(yaml, "utf-8")


def test_check_refuses_what_run_would_refuse(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("upstream: {command: no-such-program}", "utf-8")
    result = runner.invoke(app, ["config", "check", "--config", "other.yaml"])
    assert isinstance(result.exception, ConfigurationError)


def test_check_notes_a_tool_that_both_lists_name(tmp_path: Path) -> None:
    text = "{upstream: {command: sh}, embedder: {provider: static}, filtering: {allowlist: [a, b], denylist: [b]}}"
    (tmp_path / "both.yaml").write_text(text, "utf-8")
    result = runner.invoke(app, ["config", "check", "--config", "both.yaml", "--json"])
    assert json.loads(result.stdout)["notes"] == ["filtering: both lists name 'b': what is in the deny list is denied"]


class Loud(FrequencyPredictor):
    """A stranger's predictor, which takes one option."""

    def __init__(self, volume: int = 1) -> None:
        super().__init__()
        if volume > 10:
            raise ValueError("too loud")


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = importlib.metadata.entry_points(group=PREDICTORS.group)
    theirs = [
        EntryPoint("loud", f"{__name__}:Loud", PREDICTORS.group),
        EntryPoint("lost", "no.such.module:Lost", PREDICTORS.group),
    ]
    monkeypatch.setattr(predictor, "entry_points", lambda **_: EntryPoints([*ours, *theirs]))


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize("predictor", ["{kind: loud}", "{kind: loud, options: {volume: 3}}", "{kind: server}"])
def test_check_takes_every_predictor_that_is_installed(tmp_path: Path, predictor: str) -> None:
    (tmp_path / "other.yaml").write_text(f"upstream: {{command: sh}}\npredictor: {predictor}\n", "utf-8")
    (tmp_path / "riglm.yaml").rename(tmp_path / "unused.yaml")
    result = runner.invoke(
        app, ["config", "check", "--config", "other.yaml"], env={"RIGLM_EMBEDDER__PROVIDER": "static"}
    )
    assert (result.exit_code, result.stdout) == (0, "the configuration is good; servers: sh\n")


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        (
            "predictor: {kind: hybird}",
            "other.yaml: predictor.kind: no predictor is called 'hybird' — fix: did you mean",
        ),
        ("predictor: {kind: oracle}", "other.yaml: predictor.kind: no predictor is called 'oracle' — fix: one of"),
        ("predictor: {kind: lost}", "other.yaml: predictor.kind: 'lost' (no.such.module:Lost) cannot be loaded"),
        ("predictor: {kind: loud, options: {volume: 11}}", "other.yaml: predictor.options: 'loud' does not take"),
        ("predictor: {kind: server, options: {depth: 3}}", "other.yaml: predictor.options: 'server' does not take"),
        (
            "predictor: {options: {without: [wods]}}",
            "other.yaml: predictor.options.without: no signals are called wods",
        ),
        ("embedder: {model: BAAI/bge-smal}", "other.yaml: embedder.model: fastembed knows no model 'BAAI/bge-smal'"),
    ],
)
def test_check_names_the_place_of_a_predictor_or_model_that_there_is_not(tmp_path: Path, yaml: str, said: str) -> None:
    (tmp_path / "other.yaml").write_text(f"upstream: {{command: no-such-program}}\n{yaml}\n", "utf-8")
    result = runner.invoke(app, ["config", "check", "--config", "other.yaml"])
    assert isinstance(result.exception, ConfigurationError)
    program, wrong = str(result.exception).splitlines()
    assert "upstream.command: the program 'no-such-program' was not found" in program
    assert wrong.startswith(said)
    assert " — fix: " in wrong


def test_show_gives_each_value_its_source_and_covers_secrets() -> None:
    text = runner.invoke(app, ["config", "show"]).output
    assert 'mcpServers.one.env.KEY: "***"  # ' in text
    assert "downstream.port: 8700  # default" in text
    assert "canary" not in text
    shown = json.loads(runner.invoke(app, ["config", "show", "--json"]).output)
    assert shown["downstream.port"] == {"value": 8700, "source": "default"}
    assert shown["mcpServers.two.url"]["source"].endswith("riglm.yaml")


def test_settings_that_were_changed_at_run_time_are_shown_and_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIGLM_STORAGE__PATH", str(tmp_path / "riglm.db"))
    assert runner.invoke(app, ["config", "reset"]).output == "no setting was changed at run time\n"
    with SqlAnalytics(f"sqlite:///{tmp_path / 'riglm.db'}") as store:
        store.put_setting_changes({"filtering.max_tools": 9, "filtering.clients": {"x": "full"}, "prices.output": 2})
    shown = json.loads(runner.invoke(app, ["config", "show", "--json"]).output)
    assert shown["filtering.max_tools"] == {"value": 9, "source": "changed at run time"}
    assert shown["filtering.clients.x"] == {"value": "full", "source": "changed at run time"}
    assert shown["filtering.min_tools"]["source"] == "default"
    unknown = runner.invoke(app, ["config", "reset", "filtering.mode"]).exception
    assert "fix: one of filtering.clients, filtering.max_tools, prices.output" in str(unknown)
    assert runner.invoke(app, ["config", "reset", "prices.output"]).output == "reset: prices.output\n"
    reset = runner.invoke(app, ["config", "reset", "--json"])
    assert json.loads(reset.output) == {"reset": ["filtering.clients", "filtering.max_tools"]}
    shown = json.loads(runner.invoke(app, ["config", "show", "--json"]).output)
    assert shown["filtering.max_tools"] == {"value": 20, "source": "default"}


def test_a_stored_change_that_is_damaged_is_left_out_and_can_be_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIGLM_STORAGE__PATH", str(tmp_path / "riglm.db"))
    with SqlAnalytics(f"sqlite:///{tmp_path / 'riglm.db'}") as store:
        store.put_setting_changes({"filtering.max_tools": 9, "filtering.denylist": ["delete_*"]})
    with contextlib.closing(sqlite3.connect(tmp_path / "riglm.db")) as connection, connection:
        connection.execute("UPDATE setting_change SET value = '{' WHERE key = 'filtering.max_tools'")
    result = runner.invoke(app, ["config", "show", "--json"])
    shown = json.loads(result.stdout)
    assert shown["filtering.denylist"] == {"value": ["delete_*"], "source": "changed at run time"}
    assert shown["filtering.max_tools"] == {"value": 20, "source": "default"}
    assert runner.invoke(app, ["config", "reset", "filtering.max_tools"]).output.endswith(
        "reset: filtering.max_tools\n"
    )


def test_schema_prints_the_json_schema() -> None:
    assert json.loads(runner.invoke(app, ["config", "schema"]).output) == json_schema()
