"""Cached vectors, and the lock under which they are computed."""

import threading

import numpy as np

from riglm.adapters.embedding.cached import CachedEmbedder
from riglm.adapters.embedding.factory import FallbackEmbedder
from riglm.adapters.embedding.frames import Turns
from riglm.adapters.embedding.hashing import HashingEmbedder, text_hash
from riglm.domain.errors import AnalyticsUnavailableError
from tests.unit.adapters.embedding.scripted import DictionaryCache, ScriptedEmbedder
from tests.waiting import WAIT_SECONDS


def test_only_new_texts_are_asked_for_and_each_once() -> None:
    inner = ScriptedEmbedder()
    embedder = CachedEmbedder(inner)
    embedder.embed(["a", "bb"])
    rows = embedder.embed(["bb", "ccc", "ccc", "a"])
    assert inner.asked == [["a", "bb"], ["ccc"]]
    assert list(rows[:, 0]) == [2, 3, 3, 1]


def test_a_restart_finds_its_vectors_in_the_store() -> None:
    store, inner = DictionaryCache(), ScriptedEmbedder()
    first = CachedEmbedder(ScriptedEmbedder(), store).embed_public(["a", "bb"])
    assert np.array_equal(CachedEmbedder(inner, store).embed_public(["a", "bb"]), first)
    assert inner.asked == []


def test_nothing_of_what_somebody_asked_reaches_the_store() -> None:
    store, inner = DictionaryCache(), ScriptedEmbedder()
    embedder = CachedEmbedder(inner, store)
    asked = embedder.embed(["read my medical records"])
    assert store.vectors == {}
    assert np.array_equal(embedder.embed(["read my medical records"]), asked)
    assert len(inner.asked) == 1


def test_vectors_of_another_model_are_never_used() -> None:
    store, inner = DictionaryCache(), ScriptedEmbedder("scripted@2")
    CachedEmbedder(ScriptedEmbedder("scripted@1"), store).embed_public(["a"])
    rows = CachedEmbedder(inner, store).embed_public(["a"])
    assert inner.asked == [["a"]]
    assert rows[0, -1] == ord("2")


def test_a_model_that_changes_meanwhile_makes_all_rows() -> None:
    inner = ScriptedEmbedder("scripted@1")
    embedder = CachedEmbedder(inner)
    embedder.embed_public(["a"])
    inner.changes_to = "scripted@2"
    rows = embedder.embed_public(["a", "bb"])
    assert embedder.model == "scripted@2"
    assert set(rows[:, -1]) == {float(ord("2"))}


def test_a_stored_vector_that_cannot_be_right_is_made_anew() -> None:
    store, inner = DictionaryCache(), ScriptedEmbedder()
    store.vectors["scripted@1", text_hash("a")] = np.zeros(7, dtype=np.float32)
    store.vectors["scripted@1", text_hash("bb")] = np.full(3, np.nan, dtype=np.float32)
    rows = CachedEmbedder(inner, store).embed_public(["a", "bb"])
    assert list(rows[:, 0]) == [1, 2]


def test_a_store_that_fails_is_done_without_and_told_once(caplog) -> None:
    class Failing(DictionaryCache):
        def get_many(self, model, hashes):
            raise AnalyticsUnavailableError("the disk is full")

        def put_many(self, model, vectors) -> None:
            raise AnalyticsUnavailableError("the disk is full")

    embedder = CachedEmbedder(ScriptedEmbedder(), Failing())
    assert list(embedder.embed_public(["a"])[:, 0]) == [1]
    assert list(embedder.embed_public(["a", "bb"])[:, 0]) == [1, 2]
    [told] = caplog.records
    assert told.reason == "the disk is full"


def test_the_vectors_of_a_stand_in_are_not_stored() -> None:
    store, inner = DictionaryCache(), ScriptedEmbedder()
    inner.fails = True
    embedder = CachedEmbedder(FallbackEmbedder(inner, HashingEmbedder()), store)
    assert embedder.embed_public(["a"]).shape == (1, 256)
    assert store.vectors == {}


def test_a_model_that_is_back_is_asked_for_what_the_stand_in_answered() -> None:
    inner = ScriptedEmbedder()
    inner.fails = True
    embedder = CachedEmbedder(FallbackEmbedder(inner, HashingEmbedder()), DictionaryCache())
    embedder.embed(["a"])
    inner.fails = False
    assert embedder.embed(["a"]).shape == (1, 3)
    assert embedder.model == "scripted@1"


def test_memory_stays_within_its_bound() -> None:
    inner = ScriptedEmbedder()
    embedder = CachedEmbedder(inner, most_bytes=10_000)
    texts = [f"{number:05}" for number in range(200)]
    embedder.embed(texts)
    assert embedder._recent._bytes <= 10_000
    embedder.embed(texts[:1])
    assert inner.asked[-1] == texts[:1]


def test_who_waits_comes_before_who_was_just_there() -> None:
    turns, order, waiting = Turns(), [], threading.Event()

    def other() -> None:
        waiting.set()
        with turns:
            order.append("other")

    thread = threading.Thread(target=other)
    with turns:
        thread.start()
        assert waiting.wait(WAIT_SECONDS)
        while not turns._next.locked():
            pass
    with turns:
        order.append("again")
    thread.join(WAIT_SECONDS)
    assert order == ["other", "again"]
