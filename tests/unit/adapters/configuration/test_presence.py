import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from riglm.adapters.configuration.loading import Options, load
from riglm.adapters.configuration.presence import require_all, require_predictor, require_upstreams
from riglm.domain.errors import ConfigurationError
from riglm.ports import predictor
from riglm.ports.predictor import PREDICTORS


def refusal(directory: Path, yaml: str, **environment: str) -> str:
    (directory / "riglm.yaml").write_text(yaml, "utf-8")
    with pytest.raises(ConfigurationError) as caught:
        require_upstreams(load(Options(), environment=environment, directory=directory), environment)
    return str(caught.value).removeprefix(f"{directory}/")


def test_no_server_at_all_is_refused_with_what_to_do(tmp_path: Path) -> None:
    assert refusal(tmp_path, "naming: none").startswith("command line: there is no server to proxy — fix:")


def test_missing_programs_and_directories_are_all_named(tmp_path: Path) -> None:
    message = refusal(
        tmp_path,
        "mcpServers: {a: {command: no-such-program}, b: {command: sh, cwd: /no/such/place}, c: {url: 'http://h'}}",
        PATH="/bin",
    )
    assert message.splitlines()[0] == (
        "riglm.yaml: mcpServers.a.command: the program 'no-such-program' was not found"
        " — fix: install it, correct it, or give its full path"
    )
    assert "mcpServers.b.cwd: there is no directory '/no/such/place'" in message
    assert "mcpServers.c" not in message


def test_where_one_server_can_start_the_program_of_another_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "riglm.yaml").write_text("mcpServers: {a: {command: no-such-program}, b: {command: sh}}", "utf-8")
    require_upstreams(load(Options(), environment={}, directory=tmp_path), {"PATH": "/bin"}, every=False)
    (tmp_path / "riglm.yaml").write_text("mcpServers: {a: {command: no-such-program}}", "utf-8")
    with pytest.raises(ConfigurationError):
        require_upstreams(load(Options(), environment={}, directory=tmp_path), {"PATH": "/bin"}, every=False)


def test_a_whole_command_line_as_the_program_is_shown_split(tmp_path: Path) -> None:
    message = refusal(tmp_path, "upstream: {command: sh -c foo}", PATH="/bin")
    assert "the program 'sh -c foo' was not found — fix: write `command: sh` and `args: [-c, foo]`" in message


def test_a_program_is_looked_for_where_the_child_would_find_it(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "srv"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    for yaml in (
        f"upstream: {{command: srv, env: {{PATH: '{program.parent}'}}}}",
        f"upstream: {{command: bin/srv, cwd: '{tmp_path}'}}",
        f"upstream: {{command: '{sys.executable}'}}",
    ):
        (tmp_path / "riglm.yaml").write_text(yaml, "utf-8")
        require_upstreams(load(Options(), environment={}, directory=tmp_path), {"PATH": "/nowhere"})
    assert "upstream.command" in refusal(tmp_path, "upstream: {command: srv}", PATH="/nowhere")


def test_the_real_environment_counts_when_none_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    require_upstreams(load(Options(command=["sh"])))


def test_only_predictors_of_others_are_looked_for_among_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = [EntryPoint("theirs", "package:Theirs", PREDICTORS.group)]
    monkeypatch.setattr(predictor, "entry_points", lambda **_: installed)
    theirs = load(Options(), environment={"RIGLM_PREDICTOR__KIND": "theirs"}, directory=tmp_path)
    require_predictor(theirs)
    installed[0] = EntryPoint("loud", "package:Loud", PREDICTORS.group)
    with pytest.raises(ConfigurationError, match=r"^RIGLM_PREDICTOR__KIND: predictor\.kind: .* — fix: one of loud$"):
        require_predictor(theirs)
    installed.clear()
    require_predictor(load(Options(), environment={}, directory=tmp_path))


def test_all_that_several_checks_find_is_said_at_once() -> None:
    def wrong(what: str) -> None:
        raise ConfigurationError(what)

    with pytest.raises(ConfigurationError, match=r"^one\ntwo$"):
        require_all(lambda: wrong("one"), lambda: None, lambda: wrong("two"))
    require_all(lambda: None)
