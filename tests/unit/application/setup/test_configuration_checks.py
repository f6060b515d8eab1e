from pathlib import Path
from typing import Any

import pytest

from riglm.adapters.doctor import shared_mode
from riglm.application.setup.doctor_checks import check_configuration, check_problems
from riglm.domain.doctor import Severity
from riglm.domain.schemas.settings import Settings

SECRET = "correct-horse-battery"


@pytest.mark.parametrize(
    ("server", "is_secret"),
    [
        ({"command": "npx", "env": {"API_KEY": SECRET}}, True),
        ({"command": "npx", "args": ["--token", SECRET]}, True),
        ({"command": "npx", "args": [f"--token={SECRET}"]}, True),
        ({"command": "npx", "args": [f"ghp_{SECRET}"]}, True),
        ({"url": "http://host/mcp", "auth": {"token": SECRET}}, True),
        ({"url": "http://host/mcp", "headers": {"Authorization": SECRET}}, True),
        ({"url": f"http://me:{SECRET}@host/mcp"}, True),
        ({"command": "npx", "env": {"LOG_LEVEL": SECRET}, "args": ["-c", "import sys; x = 3"]}, False),
        ({"url": "http://host/mcp?mode=fast"}, False),
    ],
)
def test_a_file_that_others_may_read_is_told_only_if_a_secret_is_in_it(
    tmp_path: Path, server: dict[str, Any], is_secret: bool
) -> None:
    file = tmp_path / "riglm.yaml"
    file.write_text(str(server), "utf-8")
    settings = Settings.model_validate({"upstream": server})
    for mode, severities in ((0o600, [Severity.OK]), (0o644, [Severity.OK, *[Severity.WARNING] * is_secret])):
        file.chmod(mode)
        found = check_configuration(file, settings, [], shared_mode(file))
        assert [each.severity for each in found] == severities


def test_each_problem_of_a_configuration_is_a_finding_with_its_place_and_fix():
    problems = "riglm.yaml: filtering.mode: this is none — fix: write shadow\ncommand line: two — fix: keep one"
    first, second = check_problems(problems)
    assert (first.place, first.what, first.fix) == ("riglm.yaml: filtering.mode", "this is none", "write shadow")
    assert (second.severity, second.place) == (Severity.ERROR, "command line")
