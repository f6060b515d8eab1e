"""What was recorded for one store does not come into another."""

from pathlib import Path

import pytest

from riglm.adapters.spool.place import spool_directory

BASE = Path("spool")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/data/riglm.db", "/data/other.db"),
        ("postgresql://u@host/one", "postgresql://u@host/two"),
        ("postgresql://u@host/one", "postgresql://u@other/one"),
        ("postgresql://u@host/one", "postgresql://u@host:5433/one"),
        ("postgresql://u@/one?host=/tmp/a", "postgresql://u@/one?host=/tmp/b"),
    ],
)
def test_each_store_has_a_directory_of_its_own(one: str, other: str) -> None:
    assert spool_directory(BASE, one) == spool_directory(BASE, one)
    assert spool_directory(BASE, one) != spool_directory(BASE, other)
    assert spool_directory(BASE, one).parent == BASE


@pytest.mark.parametrize("other", ["postgresql://u:new@host/db", "postgresql://u@host/db?password=new"])
def test_another_password_is_no_other_store(other: str) -> None:
    assert spool_directory(BASE, "postgresql://u:old@host/db") == spool_directory(BASE, other)
