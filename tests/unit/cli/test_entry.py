"""The way in, before any command looks after what happens."""

import gc
import subprocess
import sys
import threading

import pytest
import typer
from typer.testing import CliRunner

from riglm.cli import entry, main
from riglm.cli.main import GROUPS, app


def test_an_interrupt_while_modules_are_loaded_is_no_failure(monkeypatch: pytest.MonkeyPatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["riglm", "stats"])
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    monkeypatch.setattr(main, "main", interrupted)
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 130


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(130)], ids=["while loading", "in a command"])
def test_an_interrupt_by_a_library_that_could_start_no_thread_names_the_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], interrupt: BaseException
):
    def interrupted() -> None:
        raise interrupt

    monkeypatch.setattr(sys, "argv", ["riglm", "doctor"])
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    monkeypatch.setattr(main, "main", interrupted)
    monkeypatch.setattr(threading.Thread, "start", refuse_thread)
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 1
    assert "— fix: end processes that are not needed, or raise the limit (`ulimit -u`" in capsys.readouterr().err


def refuse_thread(_: object) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ([], {}),
        (["--config", "a.yaml"], {"config": "a.yaml"}),
        (["--config=a.yaml", "--no-filter"], {"config": "a.yaml", "no_filter": True}),
        (["--mcp-json", "b.json", "--log-level", "debug"], {"mcp_json": "b.json", "log_level": "debug"}),
        (["--url", "http://x/mcp?a=b"], {"url": "http://x/mcp?a=b"}),
        (["--no-filter", "--", "npx", "--config", "x"], {"no_filter": True, "command": ["npx", "--config", "x"]}),
    ],
)
def test_a_plain_run_is_read_without_the_parser(words: list[str], options: dict[str, object]):
    assert entry._options_of_run(words) == {"no_filter": False, "command": [], **options}


@pytest.mark.parametrize(
    "words",
    [["--help"], ["npx", "server"], ["--config"], ["--config", "--no-filter"], ["--config="], ["--"], ["--port", "1"]],
)
def test_anything_else_is_left_to_the_parser(words: list[str]):
    assert entry._options_of_run(words) is None


def test_the_help_groups_all_commands_with_descriptions_that_fit_80_columns() -> None:
    result = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert all(text in result.stdout for commands in GROUPS.values() for _, text in commands.values())
    listed = result.stdout.partition("Set up:")[2]
    assert all(heading + ":" in result.stdout for heading in GROUPS)
    assert "..." not in listed
    assert all(len(line) <= 80 for line in listed.splitlines())


def test_the_help_has_the_first_sentence_of_each_command() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    listed = {name: text for group in GROUPS.values() for name, (_, text) in group.items()}
    assert {name: command.get_short_help_str(66) for name, command in commands.items()} == listed


def test_the_help_imports_no_command():
    program = "import sys; from riglm.cli.main import app; app(['--help'], standalone_mode=False); print(*sys.modules)"
    imported = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    found = {name.removeprefix("riglm.cli.") for name in imported if name.startswith("riglm.cli.")}
    assert found == {"entry", "main", "output"}
