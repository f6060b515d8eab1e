"""Data files are in the package."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.timeout(180)
def test_the_wheel_brings_the_tokenizer_its_licence_and_the_kinds_of_everyday_tools(tmp_path: Path) -> None:
    words = ["wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, "-m", "pip", *words, "-w", tmp_path, CHECKOUT], check=True, timeout=100)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assets = {Path(name).name for name in names if name.startswith("riglm/adapters/embedding/assets/")}
    assert assets == {"tokenizer.json", "NOTICE"}
    assert "riglm/domain/everyday_kinds.toml" in names
