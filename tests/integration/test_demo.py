"""The demo: real processes from end to end, and an honest exit code."""

import json
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from riglm.cli import demo
from riglm.cli.main import app
from riglm.demo import drive
from riglm.demo.drive import DemoStep, Scene, bundled_scene, npm_scene
from riglm.domain.errors import RiglmError
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
runner = CliRunner()


@pytest.fixture(autouse=True)
def _no_npm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive.shutil, "which", lambda _: None)


def test_what_went_through_is_what_was_recorded() -> None:
    result = runner.invoke(app, ["demo", "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    told = json.loads(result.output)
    planned = [[step.tool for step in visit] for visit in bundled_scene().visits]
    assert [[call["tool"] for call in visit["calls"]] for visit in told["visits"]] == planned
    assert [[call["tool"] for call in session["calls"]] for session in told["recorded"]["sessions"]] == planned
    failed = [
        call["tool"] for session in told["recorded"]["sessions"] for call in session["calls"] if not call["success"]
    ]
    assert failed == ["notes__read_note"]
    together = {(pair["tool_a"], pair["tool_b"]) for pair in told["recorded"]["cooccurrences"]}
    assert ("notes__write_note", "units__convert_length") in together


def test_people_are_shown_calls_sessions_and_pairs() -> None:
    result = runner.invoke(app, ["demo", "--bundled"], catch_exceptions=False)
    assert result.exit_code == 0
    for expected in (
        "Went through, visit 2",
        "Recorded: session ",
        "Used together",
        "9 calls went through, 9 were recorded",
    ):
        assert expected in result.output


def test_a_step_that_does_not_go_as_meant_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = bundled_scene().servers
    steps = (DemoStep("notes__read_note", {"title": "missing"}),)
    monkeypatch.setattr(drive, "bundled_scene", lambda: Scene(title="x", servers=servers, visits=(steps,)))
    result = runner.invoke(app, ["demo", "--json"])
    assert isinstance(result.exception, RiglmError)
    assert "notes__read_note did not answer as it should" in str(result.exception)


def test_a_riglm_that_does_not_start_fails_the_demo_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {"gone": {"command": "no-such-program"}}
    monkeypatch.setattr(drive, "bundled_scene", lambda: Scene(title="x", servers=servers, visits=((),)))
    result = runner.invoke(app, ["demo", "--json"])
    assert isinstance(result.exception, RiglmError)
    assert "the program 'no-such-program' was not found" in str(result.exception)


def test_a_record_that_is_not_what_was_sent_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    real = demo._recorded

    def forgetful(directory: Path) -> demo.Recorded:
        found = real(directory)
        return demo.Recorded(found.sessions, [calls[1:] for calls in found.invocations], found.cooccurrences)

    monkeypatch.setattr(demo, "_recorded", forgetful)
    result = runner.invoke(app, ["demo", "--json"])
    assert isinstance(result.exception, RiglmError)
    assert "what was recorded is not what was sent" in str(result.exception)


def test_the_servers_of_npm_are_played_where_they_can_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drive, "install", lambda *_: tmp_path)
    scenes = [demo._scene(tmp_path, bundled, lambda _: None).title for bundled in (False, True)]
    assert scenes == ["the reference servers of npm", "two bundled servers"]


def test_the_scene_of_npm_writes_only_below_its_directory(tmp_path: Path) -> None:
    played = npm_scene(tmp_path / "bin", tmp_path)
    paths = [step.arguments["path"] for visit in played.visits for step in visit if "path" in step.arguments]
    assert paths
    assert all(Path(path).is_relative_to(tmp_path) for path in paths)
    assert {step.tool.split("__")[0] for visit in played.visits for step in visit} == set(played.servers)


# --- npm ---


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that stands for npm; its text is the test's."""
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
    monkeypatch.setattr(drive.shutil, "which", lambda name: name)
    return program


def test_without_npm_nothing_is_installed(tmp_path: Path) -> None:
    assert drive.install(tmp_path, 5) is None


def test_installed_programs_are_found_below_the_directory(npm: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    npm.write_text(f'#!/bin/sh\necho "$@" > {said}\n', "utf-8")
    assert drive.install(tmp_path, 20) == tmp_path / "node_modules" / ".bin"
    assert all(package in said.read_text("utf-8") for package in drive.PACKAGES)


def test_an_npm_that_fails_gives_nothing(npm: Path, tmp_path: Path) -> None:
    npm.write_text("#!/bin/sh\nexit 3\n", "utf-8")
    assert drive.install(tmp_path, 20) is None


def test_an_npm_that_is_late_is_ended_with_all_that_it_started(npm: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    npm.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {started}\nwait\n", "utf-8")
    assert drive.install(tmp_path, 1.0) is None
    child = int(started.read_text("utf-8"))
    wait_until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)
