import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from riglm import running
from riglm.adapters.configuration.loading import Configuration
from riglm.cli.entry import ready
from riglm.cli.main import app
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import Settings

runner = CliRunner()


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Settings]]:
    """What the command line would start: which door, and the settings."""
    calls: list[tuple[str, Settings]] = []

    def door(name: str, code: int) -> None:
        def opened(configuration: Configuration) -> int:
            calls.append((name, configuration.settings))
            return code

        monkeypatch.setattr(running, name, opened)

    monkeypatch.chdir(tmp_path)
    door("run_stdio", 0)
    door("run_http", 7)
    return calls


@pytest.mark.parametrize("words", [["--", "sh", "-c", "x", "--url", "y"], ["sh", "-c", "x", "--url", "y"]])
def test_run_takes_a_command_with_its_own_options(started: list[tuple[str, Settings]], words: list[str]) -> None:
    assert runner.invoke(app, ["run", "--no-filter", "--log-level", "debug", *words]).exit_code == 0
    [(door, settings)] = started
    [spec] = settings.upstream_specs()
    assert (door, spec.command) == ("run_stdio", ("sh", "-c", "x", "--url", "y"))
    assert (settings.filtering.enabled, settings.logging.level) == (False, "debug")


def test_serve_takes_an_address_and_gives_back_the_exit_code(started: list[tuple[str, Settings]]) -> None:
    words = ["--host", "::1", "--port", "0", "--transport", "both", "--url", "http://h/sse"]
    assert runner.invoke(app, ["serve", *words]).exit_code == 7
    [(door, settings)] = started
    assert (door, settings.downstream.host, settings.downstream.port) == ("run_http", "::1", 0)
    assert (settings.downstream.transport, settings.upstream_specs()[0].kind) == ("both", "sse")
    assert settings.filtering.enabled


@pytest.mark.parametrize(
    ("words", "enabled", "port"), [([], False, 8701), (["--control"], True, 8701), (["--control-port", "0"], True, 0)]
)
def test_serve_serves_the_control_api_when_it_or_its_port_is_asked_for(
    started: list[tuple[str, Settings]], words: list[str], enabled: bool, port: int
) -> None:
    assert runner.invoke(app, ["serve", *words, "--url", "http://h/mcp"]).exit_code == 7
    [(_, settings)] = started
    assert (settings.control.enabled, settings.control.port) == (enabled, port)


@pytest.mark.parametrize(("command", "code"), [("run", 0), ("serve", 7)])
def test_a_url_is_sent_the_headers_that_are_given(started: list[tuple[str, Settings]], command: str, code: int) -> None:
    headers = ["--header", "Authorization: Bearer a:b", "--header", "X-Team:blue"]
    assert runner.invoke(app, [command, "--url", "http://h/mcp", *headers]).exit_code == code
    [(_, settings)] = started
    [spec] = settings.upstream_specs()
    assert spec.headers == {"Authorization": "Bearer a:b", "X-Team": "blue"}
    assert "Bearer a:b" in settings.secrets()


@pytest.mark.parametrize("words", [["run"], ["serve"]])
def test_a_predictor_that_nobody_installed_is_refused_before_anything_starts(
    started: list[tuple[str, Settings]], words: list[str]
) -> None:
    result = runner.invoke(app, [*words, "--", "sh"], env={"RIGLM_PREDICTOR__KIND": "hybird"})
    assert isinstance(result.exception, ConfigurationError)
    assert str(result.exception) == (
        "RIGLM_PREDICTOR__KIND: predictor.kind: no predictor is called 'hybird' — fix: did you mean hybrid?"
    )
    assert started == []


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "--url", "h"],
        ["run", "--header", "A: b", "--", "sh"],
        ["serve", "--url", "http://h", "--header", "no colon"],
        ["serve", "--url", "http://h", "--header", "two words: b"],
        ["run", "--", "no-such-program"],
        ["run", "--log-level", "loud", "--", "sh"],
        ["serve", "--host", "0.0.0.0", "--", "sh"],
        ["serve", "--port", "70000", "--", "sh"],
        ["serve", "--config", "missing.yaml"],
        ["serve", "--mcp-json", "missing.json"],
    ],
)
def test_what_cannot_start_is_refused_before_anything_starts(
    started: list[tuple[str, Settings]], words: list[str]
) -> None:
    result = runner.invoke(app, words)
    assert isinstance(result.exception, ConfigurationError)
    assert " — fix: " in str(result.exception)
    assert started == []


@pytest.mark.parametrize("words", [["run", "--nope"], ["serve", "--port", "x", "--", "sh"], ["nope"]])
def test_wrong_use_exits_with_2(words: list[str]) -> None:
    assert runner.invoke(app, words).exit_code == 2


def test_reading_the_configuration_leaves_the_servers_environment_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    assert ready(command=["sh"]).settings.upstream_specs()[0].command == ("sh",)
    assert dict(os.environ) == before
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "mine")
    ready(command=["sh"])
    assert os.environ["PYDANTIC_DISABLE_PLUGINS"] == "mine"
