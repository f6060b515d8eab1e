"""The seeds of every fuzz target: regressions among them fail here without a fuzzer."""

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

SEEDS = Path(__file__).with_name("seeds")
FILES = sorted(SEEDS.glob("*/*"))


@pytest.mark.parametrize("file", FILES, ids=[f"{file.parent.name}-{file.name}" for file in FILES])
def test_a_seed_breaks_nothing(file: Path) -> None:
    TARGETS[file.parent.name](file.read_bytes())


def test_every_target_has_seeds() -> None:
    assert {file.parent.name for file in FILES} == set(TARGETS)
