"""Runs tests, and those that failed once more by themselves: `python -m tests.rerun [ARGUMENTS OF PYTEST]`.

A test that fails and then passes is printed as `flaky:` in the last lines. The exit code is 0 only if each test passed
in one of the two runs. A run that did not reach its end, or that failed outside of tests, is not repeated.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

_RESULTS: Final = "RIGLM_TEST_RESULTS"
_LAST: Final = "the worker's last teardown"
_ALONE: Final = ("-n", "0", "--maxfail=0", "--last-failed", "--last-failed-no-failures=none")


class _Results:
    """The pytest plugin that writes the ids of the tests that passed and failed to the file `_RESULTS` names."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._passed: set[str] = set()
        self._failed: set[str] = set()
        self._can_repeat = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
        """Mark the teardown that ends the fixtures of the session: a test by itself does not repeat its failure."""
        if nextitem is None:
            item.user_properties.append((_LAST, True))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
            self._can_repeat &= not (report.when == "teardown" and (_LAST, True) in map(tuple, report.user_properties))
        elif report.when == "call" and report.passed:
            self._passed.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._can_repeat &= not report.failed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):
            can_repeat = self._can_repeat and not (session.shouldstop or session.shouldfail)
            found = {"passed": [*self._passed - self._failed], "failed": [*self._failed], "can_repeat": can_repeat}
            self._file.write_text(json.dumps(found))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Results(Path(os.environ[_RESULTS])))


def _run(arguments: Sequence[str], cache: str) -> tuple[int, dict[str, Any]]:
    """Run pytest; its exit code, and what the plugin wrote: nothing if pytest did not reach its end."""
    file = Path(cache, "results.json")
    file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "tests.rerun", *arguments, "-o", f"cache_dir={cache}"]
    code = subprocess.run(command, env={**os.environ, _RESULTS: str(file)}, check=False).returncode
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return code if found or code else 1, found


def main(arguments: Sequence[str]) -> int:
    """Run the tests; the exit code."""
    with tempfile.TemporaryDirectory(prefix="riglm-tests-") as cache:
        code, first = _run(arguments, cache)
        if code != pytest.ExitCode.TESTS_FAILED or not first.get("can_repeat"):
            return code
        print(f"\nRunning {len(first['failed'])} failed tests once more, by themselves", flush=True)  # noqa: T201
        repeated = [each for each in arguments if not each.startswith("--junit")]
        code, second = _run([*repeated, *_ALONE], cache)
        flaky = sorted(set(first["failed"]).intersection(second.get("passed", ())))
        for each in flaky:
            print(f"flaky: {each}", flush=True)  # noqa: T201
        return code or len(flaky) != len(first["failed"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
