import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from riglm.cli.main import app
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.published import json_schema

runner = CliRunner()


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    yaml = "mcpServers: {one: {command: sh, env: {KEY: canary}}, two: {url: 'http://h'}}"
    (tmp_path / "riglm.yaml").write_text(yaml, "utf-8")


def test_check_names_the_servers_of_a_good_configuration() -> None:
    result = runner.invoke(app, ["config", "check"])
    assert (result.exit_code, result.output) == (0, "the configuration is good; servers: one, two\n")


def test_check_refuses_what_run_would_refuse(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("upstream: {command: no-such-program}", "utf-8")
    result = runner.invoke(app, ["config", "check", "--config", "other.yaml"])
    assert isinstance(result.exception, ConfigurationError)


def test_show_gives_each_value_its_source_and_covers_secrets() -> None:
    text = runner.invoke(app, ["config", "show"]).output
    assert 'mcpServers.one.env.KEY: "***"  # ' in text
    assert "downstream.port: 8700  # default" in text
    assert "canary" not in text
    shown = json.loads(runner.invoke(app, ["config", "show", "--json"]).output)
    assert shown["downstream.port"] == {"value": 8700, "source": "default"}
    assert shown["mcpServers.two.url"]["source"].endswith("riglm.yaml")


def test_schema_prints_the_json_schema() -> None:
    assert json.loads(runner.invoke(app, ["config", "schema"]).output) == json_schema()
