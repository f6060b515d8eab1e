"""`make test` runs what failed once more: real runs of pytest in a directory of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PASSES = "def test_passes(): pass\n"
FAILS = "def test_fails(): assert False\n"
ONCE = """\
import os, pathlib, pytest
def is_first(name="ran"):
    file = pathlib.Path(__file__).with_name(name)
    found = not file.exists()
    file.touch()
    return found
"""
FLAKY = ONCE + "def test_flaky(): assert not is_first('flaky')\n"
CRASHES_ONCE = ONCE + "def test_crash():\n    if is_first(): os._exit(0)\n"
LATER_SKIPPED = ONCE + "def test_skip():\n    if not is_first(): pytest.skip()\n    assert False\n"
TEARDOWN = ONCE + (
    "@pytest.fixture(scope='session')\ndef shared():\n    yield\n    assert not is_first()\ndef test_a(shared): pass\n"
)
INTERRUPTED = "def test_stop(): raise KeyboardInterrupt\n"
NO_IMPORT_ONCE = ONCE + "if is_first(): raise ImportError\ndef test_a(): pass\n"


def run(folder: Path, text: str, *arguments: str) -> tuple[int, str]:
    """Run the tests of a module; the exit code and the output."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "tests.rerun", "-p", "xdist", "-c", str(folder / "pytest.ini")]
    command += [*arguments, str(folder)]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_a_test_that_fails_or_crashes_once_is_flaky_and_passes(tmp_path: Path) -> None:
    code, output = run(tmp_path, FLAKY + CRASHES_ONCE + PASSES, "-n1")
    assert code == 0
    assert [line.partition("::")[2] for line in output.splitlines()[-2:]] == ["test_crash", "test_flaky"]
    assert output.splitlines()[-1].startswith("flaky: ")


def test_what_fails_twice_fails_and_the_others_are_named(tmp_path: Path) -> None:
    code, output = run(tmp_path, FLAKY + FAILS + PASSES)
    assert code == 1
    assert "FAILED" in output
    assert [line.rpartition("::")[2] for line in output.splitlines() if line.startswith("flaky: ")] == ["test_flaky"]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (LATER_SKIPPED, ()),
        (TEARDOWN, ("-n1",)),
        (NO_IMPORT_ONCE, ()),
        (INTERRUPTED + PASSES, ()),
        (CRASHES_ONCE, ("-n0",)),
        (FLAKY + FAILS, ("-x",)),
    ],
)
def test_everything_else_fails(tmp_path: Path, text: str, arguments: tuple[str, ...]) -> None:
    code, output = run(tmp_path, text, *arguments)
    assert code != 0
    assert "flaky: " not in output
