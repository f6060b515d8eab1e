"""The documents that are made from code are current."""

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_of_the_configuration_is_current() -> None:
    script = DOCS / "reference" / "generate.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", ["commands", "selector"])
def test_the_reference_of_commands_and_library_is_current(page: str) -> None:
    script = DOCS / "reference" / f"generate_{page}.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_document_that_is_not_current_is_told_and_stays_until_it_is_written(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("old", "utf-8")
    script = DOCS / "reference" / "keeping.py"
    program = "import sys; from pathlib import Path; from keeping import keep; sys.argv[0] = sys.argv[1]; "
    words = [sys.executable, "-c", f"{program} sys.exit(keep({{Path(sys.argv[2]): 'new'}}))", script, document]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*words, *more], cwd=script.parent, capture_output=True, text=True, check=False, timeout=60
        )

    checked = run("--check")
    assert (checked.returncode, document.read_text("utf-8")) == (1, "old")
    assert checked.stderr == "page.md is out of date: run `python docs/reference/keeping.py`\n"
    assert (run().returncode, document.read_text("utf-8")) == (0, "new")
    assert run("--check").returncode == 0
