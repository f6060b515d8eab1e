"""Files are taken into the store: once, line by line, in whatever order."""

import json
from pathlib import Path

import pytest

from riglm.application.knowledge import importing
from riglm.application.knowledge.importing import MAX_PROBLEMS, KnowledgeImporter, LineFormat, Source, check, format_of
from riglm.domain.errors import UnusableInputError
from riglm.domain.knowledge.provenance import Table
from riglm.ports.knowledge import Scope
from tests.contracts.knowledge_contract import an_embedding
from tests.stores.memory import InMemoryKnowledge

ALICE = {"type": "entity", "name": "Alice", "entityType": "person", "observations": ["Likes tea", "Has a cat"]}
ACME = {"type": "entity", "name": "Acme", "entityType": "company", "observations": []}
WORKS = {"type": "relation", "from": "Alice", "to": "Acme", "relationType": "works_at"}


@pytest.fixture
def store():
    with InMemoryKnowledge() as opened:
        yield opened


@pytest.fixture
def file(tmp_path):
    def written(*lines, name="file.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), "utf-8")
        return path

    return written


def run(store, path, format_=LineFormat.MEMORY, owner="", advance=lambda _: None):
    return KnowledgeImporter(store, owner, 1_000.0).run([Source(path, format_)], advance)


def texts(store, table, owner=""):
    return sorted(piece.text for piece in store.newest(table, Scope(owner=owner, include_private=True), 1_000))


def state(store):
    return {table: texts(store, table) for table in Table} | {"relations": store.counts("", "m").relations}


WHOLE = {
    Table.THOUGHTS: [],
    Table.ENTITIES: ["Acme (company). Alice works at Acme.", "Alice (person). Alice works at Acme."],
    Table.OBSERVATIONS: ["Has a cat", "Likes tea"],
    "relations": 1,
}


@pytest.mark.parametrize("order", [(ALICE, ACME, WORKS), (WORKS, ALICE, ACME), (ALICE, WORKS, ACME)])
@pytest.mark.parametrize("at_once", [1, 2, 500])
def test_a_graph_is_the_same_in_whatever_order_its_lines_come(store, file, order, at_once, monkeypatch):
    monkeypatch.setattr(importing, "_LINE_BATCH_SIZE", at_once)
    done = run(store, file(*order))
    assert (done.new.entities, done.new.observations, done.new.relations, done.left_out) == (2, 2, 1, 0)
    assert state(store) == WHOLE


def test_a_graph_may_come_in_several_files(store, file):
    run(store, file(WORKS, name="relations.jsonl"))
    run(store, file(ALICE, name="alice.jsonl"))
    run(store, file(ACME, name="acme.jsonl"))
    assert state(store) == WHOLE


def test_an_import_can_be_repeated(store, file):
    run(store, file(ALICE, ACME, WORKS))
    again = run(store, file(WORKS, ACME, ALICE))
    assert (again.read.total, again.new.total) == (5, 0)
    assert state(store) == WHOLE


def test_an_entity_that_is_described_twice_has_all_observations(store, file):
    run(store, file(ALICE, ALICE | {"name": "ALICE", "entityType": "cat", "observations": ["Purrs"]}))
    assert texts(store, Table.ENTITIES) == ["ALICE (cat)."]
    assert texts(store, Table.OBSERVATIONS) == ["Has a cat", "Likes tea", "Purrs"]


def test_a_relation_that_comes_later_is_told_by_the_entities_that_were_known(store, file):
    run(store, file(ALICE))
    run(store, file(WORKS))
    assert texts(store, Table.ENTITIES) == ["Alice (person). Alice works at Acme."]


@pytest.mark.parametrize("at_once", [1, 500])
def test_an_entity_keeps_its_kind_and_its_vector_when_it_is_described_again_without_one(
    store, file, at_once, monkeypatch
):
    monkeypatch.setattr(importing, "_LINE_BATCH_SIZE", at_once)
    path = file(ALICE, {"type": "entity", "name": "ALICE"}, WORKS)
    run(store, path)
    [alice] = store.newest(Table.ENTITIES, Scope(owner=""), 10)
    store.set_vectors(Table.ENTITIES, [(alice.id, an_embedding(1, 0))])
    run(store, path)
    assert [text.lower() for text in texts(store, Table.ENTITIES)] == ["alice (person). alice works at acme."]
    assert store.without_vector(Table.ENTITIES, "minilm", 10) == []


class Meanwhile(InMemoryKnowledge):
    """Another import comes whole between what this one reads and what it writes."""

    others = None

    def add_entities(self, entities):
        others, self.others = self.others, None
        if others is not None:
            run(self, others)
        return super().add_entities(entities)


def test_two_imports_at_once_lose_no_words_of_each_other(file):
    x = {"type": "entity", "name": "X", "entityType": "thing"}
    with Meanwhile() as store:
        store.others = file(x, WORKS | {"from": "X", "to": "Z"}, name="others.jsonl")
        run(store, file(x, WORKS | {"from": "X", "to": "Y"}))
        assert texts(store, Table.ENTITIES) == ["X (thing). X works at Y. X works at Z."]


def test_a_thought_that_comes_again_with_other_tags_is_told_as_changed(store, file):
    run(store, file({"text": "zebra", "origin": "human"}), LineFormat.THOUGHTS)
    again = file({"text": "zebra", "tags": ["secret"], "origin": "model"})
    assert [run(store, again, LineFormat.THOUGHTS).changed.thoughts for _ in range(2)] == [1, 0]
    assert store.newest(Table.THOUGHTS, Scope(owner="", exclude_tags=frozenset(["secret"])), 1) == []


def test_an_entity_that_gets_other_words_is_told_as_changed(store, file):
    run(store, file(ALICE, ACME))
    assert [run(store, file(WORKS)).changed.entities for _ in range(2)] == [2, 0]
    assert run(store, file(ALICE | {"entityType": "cat"})).changed.entities == 1


def test_a_line_that_is_wrong_is_left_out_as_a_whole_and_told_by_file_line_and_fix(store, file):
    path = file(ALICE, "{", "", ACME | {"observations": ["fine", 7]}, "[]", WORKS)
    done = run(store, path)
    assert [(problem.path, problem.line) for problem in done.problems] == [(path, 2), (path, 4), (path, 5)]
    assert all(" — fix: " in problem.reason for problem in done.problems)
    assert str(done.problems[0]).startswith(f"{path}:2: this is not JSON")
    assert done.left_out == 3
    assert state(store) == WHOLE | {Table.ENTITIES: ["Alice (person). Alice works at Acme."]}


def test_nothing_of_a_wrong_line_is_told(store, file):
    done = run(store, file('["secret"]', '"secret"', '{"text": "secret"', '{"secret": 1}'), LineFormat.THOUGHTS)
    assert done.left_out == 4
    assert not any("secret" in problem.reason for problem in done.problems)


def test_of_many_wrong_lines_some_are_told_and_all_are_counted(store, file):
    done = run(store, file(*["{"] * (MAX_PROBLEMS + 20)))
    assert (len(done.problems), done.left_out) == (MAX_PROBLEMS, MAX_PROBLEMS + 20)


def test_an_unknown_key_is_told_once_with_its_first_place(store, file):
    path = file({"text": "a"}, {"text": "b", "mood": "good"}, {"text": "c", "mood": "bad", "Private": True})
    done = run(store, path, LineFormat.THOUGHTS)
    assert done.unknown_keys == {"mood": f"{path}:2"}
    assert done.new.thoughts == 3


def test_progress_is_told_in_bytes(store, file):
    path, told = file(ALICE, ACME, "{", WORKS), []
    run(store, path, advance=told.append)
    assert sum(told) == path.stat().st_size


def test_long_lines_are_taken_fewer_at_once(store, file, monkeypatch):
    monkeypatch.setattr(importing, "_MAX_BATCH_BYTES", 100)
    told = []
    run(
        store,
        file(*[{"text": f"{number} " + "x" * 150} for number in range(3)]),
        LineFormat.THOUGHTS,
        advance=told.append,
    )
    assert len(told) == 3


def test_a_check_stores_nothing_and_names_the_first_wrong_line(file):
    path = file(ALICE, ALICE | {"name": 7}, "{")
    with pytest.raises(UnusableInputError, match=r":2: 'name' must be .* — fix: .*; nothing was stored"):
        check([Source(path, LineFormat.MEMORY)])
    check([Source(file(ALICE, WORKS), LineFormat.MEMORY)])


@pytest.mark.parametrize(
    ("lines", "format_"),
    [
        ([ALICE], LineFormat.MEMORY),
        ([WORKS], LineFormat.MEMORY),
        ([{"text": "tea"}], LineFormat.THOUGHTS),
        ([{"text": "tea", "type": "note"}], LineFormat.THOUGHTS),
        (["", "{", "[]", '{"other": 1}', WORKS], LineFormat.MEMORY),
        ([""], None),
        (["\n  \n"], None),
    ],
)
def test_a_file_says_by_its_lines_what_it_is(file, lines, format_):
    assert format_of(file(*lines)) is format_


def test_a_file_that_does_not_say_what_it_is_is_refused_with_the_fix(file):
    with pytest.raises(UnusableInputError, match=r"no line is a thought.* — fix: "):
        format_of(file('{"other": 1}', "[]"))
    with pytest.raises(UnusableInputError, match=r"No such file .* — fix: "):
        format_of(Path("nowhere.jsonl"))
