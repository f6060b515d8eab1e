"""The embedder that is built: fallbacks, plug-ins, and the vectors that it keeps."""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pytest

from riglm.adapters.embedding.embedders import FallbackEmbedder, PluggedEmbedder, select_embedder
from riglm.adapters.embedding.hashing import STATIC_MODEL, HashingEmbedder, text_hash
from riglm.domain.errors import AnalyticsUnavailableError, ConfigurationError
from riglm.domain.prediction import Vector
from riglm.ports.embedder import EmbedderPort, EmbedderStatus, EmbedderUnavailableError


class ScriptedEmbedder(EmbedderPort):
    """Its rows say which text and which model they are of; `fails` makes it unavailable."""

    def __init__(self, model: str = "scripted@1", *, dimensions: int = 3) -> None:
        self.model_now = model
        self.dimensions = dimensions
        self.fails = False
        self.opened = 0
        self.asked: list[list[str]] = []
        self.changes_to: str | None = None

    def __enter__(self):
        self.opened += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.opened -= 1

    @property
    def model(self) -> str:
        return self.model_now

    def embed(self, texts: Sequence[str]) -> Vector:
        self.asked.append(list(texts))
        if self.fails:
            raise EmbedderUnavailableError("scripted to fail")
        if self.changes_to:
            self.model_now, self.changes_to = self.changes_to, None
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[: self.dimensions] = [len(text), *self.model_now.encode()[-self.dimensions + 1 :]]
        return rows

    def status(self) -> EmbedderStatus:
        name = self.model_now.partition("@")[0]
        return EmbedderStatus(
            provider="scripted",
            model=name,
            status="unavailable" if self.fails else "ready",
            actual_provider="scripted",
            actual_model=name,
            dimensions=self.dimensions,
            is_fallback_active=False,
            semantic_quality="none" if self.fails else "high",
        )


class DictionaryCache:
    """Vectors in a dictionary."""

    def __init__(self) -> None:
        self.vectors: dict[tuple[str, str], Vector] = {}

    def get_many(self, model, hashes):
        return {each: self.vectors[model, each] for each in hashes if (model, each) in self.vectors}

    def put_many(self, model, vectors) -> None:
        for each, vector in vectors.items():
            self.vectors.setdefault((model, each), vector)


def failing(name: str = "scripted@1") -> ScriptedEmbedder:
    embedder = ScriptedEmbedder(name)
    embedder.fails = True
    return embedder


def test_status_names_the_configured_model_and_the_one_that_answers() -> None:
    with FallbackEmbedder(failing(), HashingEmbedder()) as embedder:
        assert asdict(embedder.status()) == {
            "provider": "scripted",
            "model": "scripted",
            "status": "ready",
            "actual_provider": "static",
            "actual_model": STATIC_MODEL,
            "dimensions": 256,
            "is_fallback_active": True,
            "semantic_quality": "low",
        }


def test_model_is_that_of_the_last_answer_and_the_status_that_of_the_next() -> None:
    first = ScriptedEmbedder()
    with FallbackEmbedder(first, HashingEmbedder()) as embedder:
        first.fails = True
        assert embedder.model == "scripted@1"
        embedder.embed(["a"])
        assert embedder.model == STATIC_MODEL
        first.fails = False
        assert embedder.model == STATIC_MODEL
        assert embedder.status().is_fallback_active is False
        embedder.embed(["a"])
        assert embedder.model == "scripted@1"


def test_fallback_is_opened_when_it_is_needed_and_named_once(caplog) -> None:
    first, second = ScriptedEmbedder("first@1"), ScriptedEmbedder("second@1")
    with FallbackEmbedder(first, second, HashingEmbedder()) as embedder:
        assert (first.opened, second.opened) == (1, 0)
        first.fails = True
        embedder.embed(["a"])
        embedder.embed(["b"])
        assert second.opened == 1
        assert embedder.status().actual_model == "second"
    assert (first.opened, second.opened) == (0, 0)
    [record] = caplog.records
    assert (record.levelname, record.reason) == ("WARNING", "scripted to fail")


def test_only_new_public_texts_are_embedded_and_a_restart_finds_them_in_the_store() -> None:
    store, before, after = DictionaryCache(), ScriptedEmbedder(), ScriptedEmbedder()
    with FallbackEmbedder(before, HashingEmbedder(), store=store) as embedder:
        embedder.embed_public(["a", "bb"])
    with FallbackEmbedder(after, HashingEmbedder(), store=store) as embedder:
        rows = embedder.embed_public(["bb", "ccc", "ccc", "a"])
        assert after.asked == [[""], ["ccc"]]
        assert list(rows[:, 0]) == [2, 3, 3, 1]
        assert [row is None for row in embedder.find_public(["a", "new"])] == [False, True]


def test_texts_that_are_not_public_do_not_reach_the_store() -> None:
    store = DictionaryCache()
    with FallbackEmbedder(ScriptedEmbedder(), HashingEmbedder(), store=store) as embedder:
        embedder.embed(["read my medical records"])
    assert store.vectors == {}


def test_vectors_of_a_fallback_of_low_quality_are_not_stored_and_the_model_is_asked_once_it_is_back() -> None:
    store, inner = DictionaryCache(), failing()
    with FallbackEmbedder(inner, HashingEmbedder(), store=store) as embedder:
        assert embedder.embed_public(["a"]).shape == (1, 256)
        assert store.vectors == {}
        inner.fails = False
        assert embedder.embed_public(["a"]).shape == (1, 3)
        assert embedder.model == "scripted@1"


def test_vectors_of_another_model_are_never_used() -> None:
    store, inner = DictionaryCache(), ScriptedEmbedder("scripted@1")
    with FallbackEmbedder(inner, HashingEmbedder(), store=store) as embedder:
        embedder.embed_public(["a"])
        inner.changes_to = "scripted@2"
        rows = embedder.embed_public(["a", "bb"])
        assert embedder.model == "scripted@2"
        assert set(rows[:, -1]) == {float(ord("2"))}


def test_stored_vector_that_cannot_be_right_is_made_again() -> None:
    store = DictionaryCache()
    store.vectors["scripted@1", text_hash("a")] = np.zeros(7, dtype=np.float32)
    store.vectors["scripted@1", text_hash("bb")] = np.full(3, np.nan, dtype=np.float32)
    with FallbackEmbedder(ScriptedEmbedder(), HashingEmbedder(), store=store) as embedder:
        assert list(embedder.embed_public(["a", "bb"])[:, 0]) == [1, 2]


def test_store_that_fails_is_reported_once(caplog) -> None:
    class Failing(DictionaryCache):
        def get_many(self, model, hashes):
            raise AnalyticsUnavailableError("the disk is full")

        def put_many(self, model, vectors) -> None:
            raise AnalyticsUnavailableError("the disk is full")

    with FallbackEmbedder(ScriptedEmbedder(), HashingEmbedder(), store=Failing()) as embedder:
        assert list(embedder.embed_public(["a"])[:, 0]) == [1]
        assert list(embedder.embed_public(["a", "bb"])[:, 0]) == [1, 2]
    [record] = caplog.records
    assert record.reason == "the disk is full"


class Odd(HashingEmbedder):
    """Gives whatever it is told to, and raises where it is told to."""

    def __init__(self, gives=None, fails=""):
        self.gives = gives
        self.fails = fails

    def __enter__(self):
        if self.fails == "to open":
            raise OSError("no such file")
        return self

    def __exit__(self, *_):
        raise RuntimeError("it will not close")

    def embed(self, texts):
        if self.fails == "to embed":
            raise ZeroDivisionError("by zero")
        return super().embed(texts) if self.gives is None else self.gives


MISFITS = {
    "raises": Odd(fails="to embed"),
    "cannot be opened": Odd(fails="to open"),
    "too few rows": Odd(np.ones((1, 4))),
    "not finite": Odd(np.full((2, 4), np.nan)),
}


@pytest.mark.parametrize("misfit", MISFITS.values(), ids=MISFITS.keys())
def test_plugged_embedder_that_fails_is_unavailable_and_a_fallback_answers(misfit):
    plugged = PluggedEmbedder(misfit, "odd")
    with plugged, pytest.raises(EmbedderUnavailableError, match="odd"):
        plugged.embed(["a", "b"])
    with FallbackEmbedder(plugged, HashingEmbedder()) as embedder:
        assert embedder.embed(["a", "b"]).shape == (2, 256)
        assert embedder.model == STATIC_MODEL


def test_unknown_provider_is_refused_with_those_that_are_installed():
    with pytest.raises(
        ConfigurationError, match=r"embedder\.provider: unknown embedder 'odd' — fix: one of fastembed, static"
    ):
        select_embedder("odd")
