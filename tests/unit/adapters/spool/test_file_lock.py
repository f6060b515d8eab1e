"""What was recorded for one store does not come into another."""

from pathlib import Path

import pytest

from riglm.adapters.spool.file_lock import spool_directory

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


@pytest.mark.parametrize(
    "other",
    [
        "postgresql://u:p@host:5432/db",
        "postgres://other@host/db?sslmode=require&connect_timeout=3",
        "postgresql://u@/db?host=host&port=5432",
        "postgresql://host/?dbname=db&user=u",
    ],
)
def test_a_database_has_one_spool_however_its_url_is_spelled(other: str) -> None:
    assert spool_directory(BASE, "postgresql://u@host/db") == spool_directory(BASE, other)


def test_a_file_has_one_spool_by_whatever_path_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    real = spool_directory(BASE, str(tmp_path / "real" / "riglm.db"))
    assert spool_directory(BASE, str(tmp_path / "link" / "riglm.db")) == real
    assert spool_directory(BASE, str(tmp_path / "link" / ".." / "real" / "riglm.db")) == real
