"""The documents that are made from code are current, and what the documents show is true."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from riglm.adapters.configuration.loading import Options, load

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]


def test_the_reference_of_the_configuration_is_current() -> None:
    script = DOCS / "reference" / "generate.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_configuration_that_is_shown_is_valid(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)):
        file = tmp_path / f"{number}.yaml"
        file.write_text(block, "utf-8")
        variables = dict.fromkeys(re.findall(r"\$\{(\w+)\}", block), "8f3a6c0d9e1b47725a" * 2)
        load(Options(config=file), environment=variables)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_documents_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target
