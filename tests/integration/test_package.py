"""The files of a release, built without a network."""

import email
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", directory], cwd=ROOT, check=True, timeout=90)
    return directory


def read_metadata(built: Path) -> "email.message.Message[str, str]":
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        [name] = [each for each in files.namelist() if each.endswith(".dist-info/METADATA")]
        return email.message_from_string(files.read(name).decode())


def test_the_readme_leads_from_a_package_index_to_files_of_the_repository(built: Path) -> None:
    metadata = read_metadata(built)
    assert metadata["Description-Content-Type"] == "text/markdown"
    html = MarkdownIt("commonmark").enable("table").render(str(metadata.get_payload()))
    repository = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"]
    raw = repository.replace("github.com", "raw.githubusercontent.com")
    targets = re.findall(r'(?:href|src)="([^"]+)"', html)
    assert all(re.match(r"https?:|#", target) for target in targets), targets
    ours = [target for target in targets if target.startswith((f"{repository}/", f"{raw}/"))]
    assert len(ours) > 10
    for target in ours:
        kind, _, path = target.partition("/main/")
        assert (ROOT / path.partition("#")[0]).is_file(), target
        assert kind == (raw if path.endswith((".svg", ".png")) else f"{repository}/blob"), target
    assert f"<{repository}/security/advisories/new>" in (ROOT / "SECURITY.md").read_text("utf-8")


def test_each_python_that_is_named_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert f"PYTHONS ?= {' '.join(named)}\n" in (ROOT / "Makefile").read_text("utf-8")
    assert project["requires-python"] == f">={named[0]}"


def test_the_wheel_has_the_manual_page_and_the_source_what_a_build_needs(built: Path) -> None:
    [wheel], [source] = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as files:
        assert any(name.endswith(".data/data/share/man/man1/riglm.1") for name in files.namelist())
    with tarfile.open(source) as archive:
        names = {Path(name).parts[1] for name in archive.getnames()}
    assert names == {
        *("src", "migrations", "docs"),
        *("CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"),
    }
