"""An embedder that a package brings harms nobody, whatever it does."""

import numpy as np
import pytest

from riglm.adapters.embedding.factory import FallbackEmbedder, PluggedEmbedder, select_embedder
from riglm.adapters.embedding.hashing import STATIC_MODEL, HashingEmbedder
from riglm.domain.errors import ConfigurationError
from riglm.ports.embedder import EmbedderUnavailableError


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
