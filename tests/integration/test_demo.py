"""The demo: real processes from end to end, the numbers it ends with, and what it leaves behind."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from riglm.cli import demo
from riglm.cli.main import app
from riglm.demo import agent
from riglm.domain.errors import RiglmError, UnusableInputError
from tests.waiting import wait_until

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "demo.svg"

pytestmark = pytest.mark.timeout(600)
runner = CliRunner()


def run_demo(directory: Path) -> "subprocess.Popen[str]":
    """Start the demo; its temporary directory is in this one, which is also its home."""
    environment = {**os.environ, "TMPDIR": str(directory), "HOME": str(directory)}
    return subprocess.Popen(
        [sys.executable, "-m", "riglm", "demo", "--bundled"],
        env=environment,
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.usefixtures("riglm_is_forked")
def test_lists_are_short_hit_and_pay_as_in_the_picture_and_a_second_run_decides_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "mine")
    page, picture, planned = tmp_path / "page.html", tmp_path / "demo.svg", agent.plan_sessions()
    monkeypatch.setattr(demo, "plan_sessions", lambda _: planned)
    ran, print_result = [], demo._print_result
    monkeypatch.setattr(demo, "_print_result", lambda *args: [ran.append(args[1]), print_result(*args)])
    done = runner.invoke(app, ["demo", "--bundled", "--html", str(page), "--svg", str(picture)], catch_exceptions=False)
    last = demo.summarize(ran[0][-5:])
    assert last["tools_available"] >= 60
    assert last["fewer_tools"] >= 60
    assert last["hit_rate"] >= 85
    assert last["price"] <= 0.7
    assert last["price_of_search"] < 1
    lines = done.output.splitlines()
    assert [int(line.split()[0]) for line in lines if re.match(r" ?\d+ .* of 79 ", line)] == list(range(1, 25))
    for expected in ("Learning curve", "In the last 5 sessions riglm listed", "  riglm init", "  riglm report"):
        assert expected in done.output
    assert f"{last['calls_listed']:.0f} % of the calls" in page.read_text("utf-8")
    assert "<svg" in page.read_text("utf-8")
    assert set(tmp_path.iterdir()) == {page, picture}
    renew = "is out of date: run `riglm demo --bundled --svg docs/images/demo.svg`"
    assert picture.read_text("utf-8") == PICTURE.read_text("utf-8"), f"{PICTURE.name} {renew}"
    del planned[2:]
    done = runner.invoke(app, ["demo", "--bundled", "--json"], catch_exceptions=False)
    result = json.loads(done.stdout)
    assert result["sessions"] == [each.to_fields() for each in ran[0][:2]]
    assert any(each["found_by_search"] for each in result["sessions"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with run_demo(tmp_path) as process:
        [directory] = wait_until(lambda: list(tmp_path.glob("riglm-demo-*")))
        started = wait_until(lambda: psutil.Process(process.pid).children(recursive=True), "riglm is started")
        process.send_signal(number)
        process.communicate()
    assert process.returncode == 128 + number
    assert not directory.exists()
    wait_until(lambda: not any(each.is_running() for each in started), "riglm and its servers have ended")


def test_servers_that_do_not_start_fail_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "bundled_servers", lambda: {"gone": {"command": "no-such-program"}})
    result = runner.invoke(app, ["demo", "--bundled", "--json"])
    assert isinstance(result.exception, RiglmError)
    assert "no-such-program" in str(result.exception)


def test_too_few_processes_are_an_error_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "_fork_exec", refuse)
    result = runner.invoke(app, ["demo", "--bundled"])
    assert isinstance(result.exception, RiglmError)
    assert re.search(r"no further process or thread .* — fix: .*ulimit -u", str(result.exception))


@pytest.mark.parametrize(("option", "file"), [("--html", "."), ("--svg", "no-such-directory/demo.svg")])
def test_a_file_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, option: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, ["demo", option, file])
    assert isinstance(result.exception, UnusableInputError)
    assert re.match(f"{option} .* — fix: name a file that you may write", str(result.exception))


# --- npm ---


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of npm; the test writes its text."""
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
    monkeypatch.setattr(agent.shutil, "which", lambda name: name)
    return program


def test_an_npm_that_takes_too_long_is_ended_with_its_children(npm: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    npm.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {started}\nwait\n", "utf-8")
    assert agent.install(tmp_path, 1.0) is None
    child = int(started.read_text("utf-8"))
    wait_until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)
