"""riglm as others install it: built, unpacked elsewhere, run from anywhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of riglm without the checkout; the packages that it needs come from this environment."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    # Without isolation nothing is downloaded: the build backend is a development dependency.
    subprocess.run([*pip, "--no-build-isolation", "--target", target, CHECKOUT], check=True, timeout=100)
    return target


def run(installed: Path, directory: Path, *words: str) -> str:
    # The copy is not what coverage is to be measured of.
    unwanted = ("RIGLM_", "COVERAGE_", "COV_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    environment |= {"PYTHONPATH": str(installed), "RIGLM_DATA_DIR": str(directory / "data")}
    done = subprocess.run(
        [sys.executable, "-m", "riglm", *words],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(180)
def test_an_installed_riglm_brings_its_migrations_and_its_page(installed: Path, tmp_path: Path) -> None:
    assert "Usage" in run(installed, tmp_path, "--help")
    assert "pending  nothing" in run(installed, tmp_path, "db", "upgrade")
    assert (installed / "riglm" / "migrations" / "env.py").is_file()
    assert (installed / "riglm" / "py.typed").is_file()
    page = installed / "riglm" / "adapters" / "control" / "dashboard"
    assert (page / "index.html").is_file()
    assert (page / "assets" / "vendor" / "echarts" / "echarts.common.min.js").is_file()
    assert (installed / "bin" / "riglm").is_file()
    assert (installed / "riglm" / "domain" / "everyday_kinds.toml").is_file()
    assets = installed / "riglm" / "adapters" / "embedding" / "assets"
    assert {file.name for file in assets.iterdir()} == {"tokenizer.json", "tokenizer_config.json", "NOTICE"}


@pytest.mark.timeout(180)
def test_what_runs_is_the_installed_copy(installed: Path, tmp_path: Path) -> None:
    program = "import riglm, sys; sys.stdout.write(riglm.__file__)"
    environment = {"PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout).is_relative_to(installed)
