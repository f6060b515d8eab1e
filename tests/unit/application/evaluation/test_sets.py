"""Sets are found where they are, and what is asked for and not there is said."""

import pytest

from riglm.application.evaluation.dataset import DatasetError, find_sets
from tests.unit.application.evaluation.sets import write

QUERIES = "queries.jsonl"


@pytest.fixture
def data(tmp_path):
    for name in ("b", "a", "c"):
        write(tmp_path / name, [{"name": "tool"}], [])
    (tmp_path / "c" / "dev" / QUERIES).rename(tmp_path / "c" / "dev" / "sessions.jsonl")
    (tmp_path / "no_set").mkdir()
    return tmp_path


def test_all_sets_with_the_file_on_the_side_are_found_in_order(data):
    assert find_sets(data, side="dev", file=QUERIES) == [data / "a", data / "b"]


def test_named_sets_come_in_the_order_asked_for_each_once(data):
    assert find_sets(data, ["b", "a/", "b"], side="dev", file=QUERIES) == [data / "b", data / "a"]


def test_a_directory_that_is_a_set_is_that_one_set(data, monkeypatch):
    assert find_sets(data / "a", side="dev", file=QUERIES) == [data / "a"]
    assert find_sets(data / "a", ["a"], side="dev", file=QUERIES) == [data / "a"]
    monkeypatch.chdir(data / "a")
    assert [found.name for found in find_sets(type(data)(), side="dev", file=QUERIES)] == ["a"]


@pytest.mark.parametrize(
    ("names", "side", "said"),
    [
        (["d"], "dev", "no set is called 'd' — fix: one of a, b, c"),
        (["../a"], "dev", "no set is called '../a'"),
        (["c"], "dev", "c: no set with dev/queries.jsonl"),
        ([], "test", "no set with test/queries.jsonl — fix: --side dev"),
        ([], "../dev", "--side: '../dev' cannot be the name of a directory"),
        ([], "", "--side: '' cannot be the name of a directory"),
    ],
)
def test_what_is_not_there_is_named_beside_what_is(data, names, side, said):
    with pytest.raises(DatasetError) as caught:
        find_sets(data, names, side=side, file=QUERIES)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("place", "said"), [("nowhere", "No such file"), ("no_set", "no set in it"), ("a/tools.jsonl", "Not a directory")]
)
def test_data_that_is_no_directory_of_sets_is_named(data, place, said):
    with pytest.raises(DatasetError, match=said) as caught:
        find_sets(data / place, side="dev", file=QUERIES)
    assert str(data / place) in str(caught.value)
