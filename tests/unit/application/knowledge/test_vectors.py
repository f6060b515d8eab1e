"""Pieces get the vectors that they lack, and what was given stays."""

import numpy as np
import pytest

from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.application.knowledge.importing import give_vectors
from riglm.domain.knowledge.records import Embedding
from riglm.ports.embedder import EmbedderUnavailableError
from tests.contracts.knowledge_contract import a_thought, an_entity, an_observation
from tests.stores.memory import InMemoryKnowledge


class Counted(HashingEmbedder):
    """Notes what it is asked, and answers no more than a number of times, or then as another model."""

    def __init__(self, answers=10_000, *, changes=False):
        self.asked = []
        self._answers = answers
        self._changes = changes

    @property
    def model(self):
        return "another" if self._changes and len(self.asked) > self._answers else "counted"

    def embed(self, texts):
        self.asked += [list(texts)] * bool(texts)
        if len(self.asked) > self._answers and not self._changes:
            raise EmbedderUnavailableError("it is away")
        return super().embed(texts)


@pytest.fixture
def store():
    with InMemoryKnowledge() as opened:
        alice = an_entity("Alice")
        opened.add_thoughts([a_thought(f"thought {number}") for number in range(100)])
        opened.add_entities([alice])
        opened.add_observations([an_observation(alice, "Likes tea")])
        yield opened


def waiting(store):
    return store.counts(None, "counted").without_vector


def test_one_of_another_model_is_replaced(store):
    store.add_thoughts([a_thought("old", 1, 0, model="old")])
    give_vectors(store, Counted(), 8, lambda _: None)
    assert waiting(store) == 0


def test_what_was_given_before_the_model_went_away_stays_and_the_rest_comes_the_next_time(store):
    told = []
    with pytest.raises(EmbedderUnavailableError, match="away"):
        give_vectors(store, Counted(answers=9), 8, told.append)
    assert (waiting(store), sum(told)) == (102 - 64, 64)
    give_vectors(store, Counted(), 8, told.append)
    assert (waiting(store), sum(told)) == (0, 102)


def test_it_ends_when_another_process_takes_the_vectors_away_again(store, monkeypatch):
    keep = store.set_vectors
    other = Embedding(model="other", vector=np.ones(2, np.float32))
    monkeypatch.setattr(store, "set_vectors", lambda table, given: keep(table, [(id_, other) for id_, _ in given]))
    give_vectors(store, Counted(), 8, lambda _: None)
    assert waiting(store) == 102
