"""Every cache of vectors, held to the same contract, and what only one of them does."""

import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.analytics.vectors import SqlVectors
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.ports.embedder import VectorCachePort
from tests.contracts.vector_cache_contract import VectorCacheContract, a_vector
from tests.preloaded import script_command
from tests.records import a_session

WRITER = """
import sys
from riglm.adapters.analytics.vectors import SqlVectors
from tests.contracts.vector_cache_contract import a_vector
vectors = SqlVectors(sys.argv[1])
for number in range(20):
    vectors.put_many("minilm", {"shared": a_vector(1), f"{sys.argv[2]} {number}": a_vector(number)})
vectors.close()
"""


class TestSqliteVectors(VectorCacheContract):
    @pytest.fixture
    def vectors(self, url: str) -> Iterator[VectorCachePort]:
        cache = SqlVectors(url)
        yield cache
        cache.close()


class TestPostgresqlVectors(VectorCacheContract):
    @pytest.fixture
    def vectors(self, postgres_url: str) -> Iterator[VectorCachePort]:
        cache = SqlVectors(postgres_url)
        yield cache
        cache.close()


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "usage.db"


@pytest.fixture
def url(file: Path) -> str:
    return f"sqlite:///{file}"


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, url: str) -> str:
    """The URL of an empty store in a database."""
    return url if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_constructing_a_cache_touches_nothing(url, file):
    SqlVectors(url).close()
    assert not file.exists()


def test_vectors_are_there_when_the_database_is_opened_again(place):
    for _ in range(2):
        vectors = SqlVectors(place)
        vectors.put_many("minilm", {"a": a_vector(1)})
        vectors.close()
    assert vectors.get_many("minilm", ["a"])["a"].tolist() == [1]
    vectors.close()


def test_beyond_the_limit_the_longest_unused_make_room(place, clock):
    vectors = SqlVectors(place, max_bytes=40, clock=clock)
    for number in range(10):
        clock.now += 1
        vectors.put_many("minilm", {f"{number}": a_vector(number)})
    clock.now += 100_000
    assert len(vectors.get_many("minilm", ["0"])) == 1
    vectors.put_many("minilm", {"new": a_vector(1)})
    assert set(vectors.get_many("minilm", [*map(str, range(10)), "new"])) == {"0", "new", *map(str, range(3, 10))}
    vectors.close()


def test_beyond_the_limit_of_bytes_the_longest_unused_make_room(place, clock):
    vectors = SqlVectors(place, max_bytes=9000, clock=clock)
    for name in "abcd":
        clock.now += 1
        vectors.put_many("minilm", {name: np.ones((10, 60), np.float32), name.upper(): a_vector(1)})
    assert set(vectors.get_many("minilm", list("abcdABCD"))) == set("bcdABCD")
    vectors.close()


def test_what_earlier_processes_left_is_counted_at_the_first_use(place, clock):
    earlier = SqlVectors(place, clock=clock)
    earlier.put_many("minilm", {f"{number}": a_vector(number) for number in range(20)})
    earlier.close()
    clock.now += 1
    vectors = SqlVectors(place, max_bytes=40, clock=clock)
    vectors.put_many("minilm", {"new": a_vector(1)})
    found = vectors.get_many("minilm", [*map(str, range(20)), "new"])
    assert len(found) == 9
    assert "new" in found
    vectors.close()


def test_reading_writes_at_most_once_a_day(url, file, clock):
    vectors = SqlVectors(url, clock=clock)
    vectors.put_many("minilm", {"a": a_vector(1)})

    def used_at() -> float:
        vectors.get_many("minilm", ["a"])
        rows = sqlite3.connect(file)
        [[found]] = rows.execute("SELECT used_at FROM cached_vector").fetchall()
        rows.close()
        return found

    start = clock.now
    clock.now = start + 86_000
    assert used_at() == start
    clock.now = start + 87_000
    assert used_at() == clock.now
    vectors.close()


def test_vectors_are_found_while_another_process_writes(url, file, clock):
    vectors = SqlVectors(url, clock=clock, timeout=0.01)
    vectors.put_many("minilm", {"a": a_vector(1)})
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    clock.now += 100_000
    assert len(vectors.get_many("minilm", ["a"])) == 1
    with pytest.raises(AnalyticsUnavailableError, match="locked"):
        vectors.put_many("minilm", {"b": a_vector(1)})
    other.execute("ROLLBACK")
    other.close()
    vectors.close()


def test_a_file_that_is_no_database_is_unavailable(url, file):
    file.write_bytes(b"no database " * 1000)
    vectors = SqlVectors(url)
    with pytest.raises(AnalyticsUnavailableError, match=r"usage\.db.*not a database"):
        vectors.get_many("minilm", ["a"])
    with pytest.raises(AnalyticsUnavailableError, match=r"usage\.db.*not a database"):
        vectors.put_many("minilm", {"a": a_vector(1)})


def test_processes_may_write_at_once_beside_an_open_store(url, file):
    with SqlAnalytics(url) as store:
        writers = [subprocess.Popen(script_command(WRITER, url, name)) for name in ("one", "two")]
        mine = SqlVectors(url)
        for number in range(20):
            mine.put_many("minilm", {"shared": a_vector(1), f"mine {number}": a_vector(number)})
            store.record_many([a_session()])
        assert [each.wait(60) for each in writers] == [0, 0]
        mine.close()
        store.record_many([a_session()])
    rows = sqlite3.connect(file)
    assert rows.execute("SELECT count(*) FROM cached_vector").fetchone() == (61,)
    assert rows.execute("SELECT count(*) FROM session").fetchone() == (21,)
    assert rows.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    rows.close()
