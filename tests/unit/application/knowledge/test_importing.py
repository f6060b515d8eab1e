"""Files are taken into the store: once, line by line, in whatever order."""

import json

import numpy as np
import pytest

from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.application.knowledge import importing
from riglm.application.knowledge.importing import KnowledgeImporter, LineFormat, Source, give_vectors
from riglm.domain.knowledge import Embedding, Table
from riglm.ports.embedder import EmbedderUnavailableError
from riglm.ports.knowledge import Scope
from tests.contracts.knowledge_contract import a_thought, an_embedding, an_entity, an_observation
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
    assert (done.new["entities"], done.new["observations"], done.new["relations"], done.left_out) == (2, 2, 1, 0)
    assert state(store) == WHOLE


def test_an_import_can_be_repeated(store, file):
    run(store, file(ALICE, ACME, WORKS))
    again = run(store, file(WORKS, ACME, ALICE))
    assert (again.read.total(), again.new.total()) == (5, 0)
    assert state(store) == WHOLE


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
    assert [run(store, again, LineFormat.THOUGHTS).changed["thoughts"] for _ in range(2)] == [1, 0]
    assert store.newest(Table.THOUGHTS, Scope(owner="", exclude_tags=frozenset(["secret"])), 1) == []


def test_nothing_of_a_wrong_line_is_told(store, file):
    done = run(store, file('["secret"]', '"secret"', '{"text": "secret"', '{"secret": 1}'), LineFormat.THOUGHTS)
    assert done.left_out == 4
    assert not any("secret" in problem.reason for problem in done.problems)


def test_an_unknown_key_is_told_once_with_its_first_place(store, file):
    path = file({"text": "a"}, {"text": "b", "mood": "good"}, {"text": "c", "mood": "bad", "Private": True})
    done = run(store, path, LineFormat.THOUGHTS)
    assert done.unknown_keys == {"mood": f"{path}:2"}
    assert done.new["thoughts"] == 3


# --- pieces get the vectors that they lack, and what was given stays ---


class Counted(HashingEmbedder):
    """Answers no more than a number of times."""

    model = "counted"

    def __init__(self, answers=10_000):
        self._left = answers

    def embed(self, texts):
        self._left -= bool(texts)
        if self._left < 0:
            raise EmbedderUnavailableError("it is away")
        return super().embed(texts)


@pytest.fixture
def full():
    with InMemoryKnowledge() as opened:
        alice = an_entity("Alice")
        opened.add_thoughts([a_thought(f"thought {number}") for number in range(100)])
        opened.add_entities([alice])
        opened.add_observations([an_observation(alice, "Likes tea")])
        yield opened


def waiting(full):
    return full.counts(None, "counted").without_vector


def test_one_of_another_model_is_replaced(full):
    full.add_thoughts([a_thought("old", 1, 0, model="old")])
    sum(give_vectors(full, Counted(), 8))
    assert waiting(full) == 0


def test_what_was_given_before_the_model_went_away_stays_and_the_rest_comes_the_next_time(full):
    with pytest.raises(EmbedderUnavailableError, match="away"):
        list(give_vectors(full, Counted(answers=9), 8))
    assert waiting(full) == 102 - 64
    assert sum(give_vectors(full, Counted(), 8)) == 102 - 64
    assert waiting(full) == 0


def test_it_ends_when_another_process_takes_the_vectors_away_again(full, monkeypatch):
    keep = full.set_vectors
    other = Embedding(model="other", vector=np.ones(2, np.float32))
    monkeypatch.setattr(full, "set_vectors", lambda table, given: keep(table, [(id_, other) for id_, _ in given]))
    sum(give_vectors(full, Counted(), 8))
    assert waiting(full) == 102
