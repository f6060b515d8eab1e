"""Fallback and plugged-in embedders."""

from dataclasses import asdict

import numpy as np
import pytest

from riglm.adapters.embedding.factory import FallbackEmbedder, PluggedEmbedder, select_embedder
from riglm.adapters.embedding.hashing import STATIC_MODEL, HashingEmbedder
from riglm.domain.errors import ConfigurationError
from riglm.ports.embedder import EmbedderUnavailableError
from tests.unit.adapters.embedding.scripted import ScriptedEmbedder


def test_the_status_tells_what_stands_in_for_what() -> None:
    first = ScriptedEmbedder()
    first.fails = True
    with FallbackEmbedder(first, HashingEmbedder()) as embedder:
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


def test_the_name_of_the_model_is_that_of_the_last_answer() -> None:
    first = ScriptedEmbedder()
    with FallbackEmbedder(first, HashingEmbedder()) as embedder:
        assert embedder.model == "scripted@1"
        first.fails = True
        assert embedder.model == "scripted@1"
        embedder.embed(["a"])
        assert embedder.model == STATIC_MODEL
        first.fails = False
        assert embedder.model == STATIC_MODEL
        embedder.embed(["a"])
        assert embedder.model == "scripted@1"


def test_the_status_follows_as_soon_as_the_model_is_back() -> None:
    first = ScriptedEmbedder()
    first.fails = True
    with FallbackEmbedder(first, HashingEmbedder()) as embedder:
        first.fails = False
        assert embedder.status().is_fallback_active is False


def test_a_lasting_failure_is_told_once(caplog) -> None:
    first = ScriptedEmbedder()
    first.fails = True
    with FallbackEmbedder(first, HashingEmbedder()) as embedder:
        embedder.embed(["a"])
        embedder.embed(["b"])
    [told] = caplog.records
    assert told.levelname == "WARNING"
    assert told.reason == "scripted to fail"


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
    "one dimension": Odd(np.ones(2)),
    "no numbers": Odd([["a"], ["b"]]),
    "not finite": Odd(np.full((2, 4), np.nan)),
    "nothing": Odd([]),
}


@pytest.mark.parametrize("misfit", MISFITS.values(), ids=MISFITS.keys())
def test_what_it_does_amiss_counts_as_being_away_and_another_stands_in(misfit):
    plugged = PluggedEmbedder(misfit, "odd")
    with plugged, pytest.raises(EmbedderUnavailableError, match="odd"):
        plugged.embed(["a", "b"])
    with FallbackEmbedder(plugged, HashingEmbedder()) as embedder:
        assert embedder.embed(["a", "b"]).shape == (2, 256)
        assert embedder.model == STATIC_MODEL


def test_what_it_does_right_is_passed_on_under_its_name_in_the_configuration():
    with PluggedEmbedder(Odd(), "odd") as embedder:
        assert np.array_equal(embedder.embed(["a file"]), HashingEmbedder().embed(["a file"]))
        assert (embedder.status().provider, embedder.status().status) == ("odd", "ready")


def test_one_that_nobody_brings_is_told_with_those_that_there_are():
    with pytest.raises(
        ConfigurationError, match=r"embedder\.provider: unknown embedder 'odd' — fix: one of fastembed, static"
    ):
        select_embedder("odd")
