"""Every knowledge store, held to the same contract, and what only SQL does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.knowledge import SqlKnowledge
from riglm.domain.knowledge import Table, capped
from riglm.ports.knowledge import KnowledgePort
from tests.contracts.knowledge_contract import MINE, KnowledgeContract, a_thought, an_embedding


class TestSqliteKnowledge(KnowledgeContract):
    @pytest.fixture
    def knowledge(self, tmp_path: Path) -> Iterator[KnowledgePort]:
        with SqlKnowledge(f"sqlite:///{tmp_path / 'knowledge.db'}") as store:
            yield store


class TestPostgresqlKnowledge(KnowledgeContract):
    @pytest.fixture
    def knowledge(self, postgres_url: str) -> Iterator[KnowledgePort]:
        with SqlKnowledge(postgres_url) as store:
            yield store


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'one.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def test_a_store_finds_what_another_one_on_the_same_database_changed(place: str):
    thoughts = [a_thought(f"{number}", 1, number) for number in range(5)]
    with SqlKnowledge(place) as one, SqlKnowledge(place) as other:
        one.add_thoughts(thoughts)
        assert len(other.nearest(Table.THOUGHTS, an_embedding(1, 0), MINE, 10)) == 5
        one.forget(Table.THOUGHTS, [each.id for each in thoughts[:4]], "")
        assert [each.text for each in other.nearest(Table.THOUGHTS, an_embedding(1, 0), MINE, 10)] == ["4"]
        one.add_thoughts([a_thought("new", 1, 0)])
        assert [each.text for each in other.nearest(Table.THOUGHTS, an_embedding(1, 0), MINE, 10)] == ["new", "4"]


def found(store: SqlKnowledge) -> list[str]:
    return [each.text for each in store.nearest(Table.THOUGHTS, an_embedding(1, 0), MINE, 10)]


def test_a_file_that_took_another_one_s_place_is_asked_for_all_that_is_in_it(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'one.db'}"
    with SqlKnowledge(url) as asked:
        for number in range(3):
            asked.add_thoughts([a_thought(f"{number}", 1, number)])
        assert found(asked) == ["0", "1", "2"]
        for file in tmp_path.glob("one.db*"):
            file.unlink()
        with SqlKnowledge(url) as other:
            other.add_thoughts([a_thought("new", 1, 0)])
        assert found(asked) == ["new"]


@pytest.mark.parametrize("later", [[], ["new"], ["new", "newer"]], ids=["at once", "as often", "more often"])
def test_a_backup_that_was_restored_is_asked_for_all_that_is_in_it(place: str, later: list[str]):
    both = ("thought", "knowledge_clock")
    database = Database(place)
    database.open()
    try:
        with SqlKnowledge(place) as asked:
            asked.add_thoughts([a_thought("early", 1, 0)])
            with database.writing() as connection:
                for table in both:
                    connection.execute(text(f"CREATE TABLE backup_{table} AS SELECT * FROM {table}"))
            asked.add_thoughts([a_thought("lost", 1, 0)])
            assert sorted(found(asked)) == ["early", "lost"]
            with database.writing() as connection:
                for table in both:
                    connection.execute(text(f"DELETE FROM {table}"))
                    connection.execute(text(f"INSERT INTO {table} SELECT * FROM backup_{table}"))
            for place_, words in enumerate(later, 1):
                asked.add_thoughts([a_thought(words, 1, place_)])
            assert found(asked) == ["early", *later]
    finally:
        database.close()


def test_of_a_long_text_no_more_is_read_than_a_snippet_is_cut_from(place: str):
    starts = [
        "plain. " * 200,
        "x" * 799 + ". y",
        "x" * 800 + " y",
        "\0" * 900,
        "a" + "\ud800" * 799 + ".\0",
        "\x1a" * 801,
    ]
    texts = [f"{start}{'z' * 50_000}{number}" for number, start in enumerate(starts)]
    with SqlKnowledge(place) as store:
        store.add_thoughts([a_thought(each, 1, number) for number, each in enumerate(texts)])
        read = found(store)
    assert [capped(each) for each in read] == [capped(each) for each in texts]
    assert max(map(len, read)) < 5_000
