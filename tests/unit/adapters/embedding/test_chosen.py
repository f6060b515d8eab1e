"""The model that was chosen, whatever the embedding process comes back with."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from riglm.adapters.embedding.fastembed import ChosenEmbedder, FastembedEmbedder
from riglm.adapters.embedding.frames import Loaded, PassedOver
from riglm.domain.prediction import Vector
from riglm.ports.embedder import EmbedderStatus, EmbedderUnavailableError

INSTALLED = Loaded(model="riglm/small", identity="riglm/small@1", dimensions=2)
PULLED = Loaded(model="BAAI/Large", identity="BAAI/Large@7", dimensions=2)
IN_PLACE = Loaded(
    model="riglm/small",
    identity="riglm/small@1",
    dimensions=2,
    passed_over=(PassedOver(model="baai/large", reason="it is not there"),),
)


class Loading(FastembedEmbedder):
    """An embedder whose process loads what the test says."""

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(("baai/large",), directory=Path("nowhere"))
        self._first = self.at_work = loaded

    @property
    def loaded(self) -> Loaded:
        return self.at_work

    @property
    def first_loaded(self) -> Loaded:
        return self._first

    def answered(self, texts: Sequence[str]) -> tuple[Loaded | None, Vector]:
        return self.at_work, np.ones((len(texts), 2), np.float32)

    def status(self) -> EmbedderStatus:
        return EmbedderStatus(
            provider="fastembed",
            model="baai/large",
            status="ready",
            actual_provider="fastembed",
            actual_model=self.at_work.model,
            dimensions=2,
            is_fallback_active=False,
            semantic_quality="high",
        )


def test_what_stands_in_for_the_configured_model_does_not_answer_and_the_reason_is_told():
    embedder = Loading(IN_PLACE)
    chosen = ChosenEmbedder(embedder, "baai/large")
    with pytest.raises(EmbedderUnavailableError, match=r"^it is not there$"):
        chosen.embed(["a"])
    assert (chosen.model, chosen.status().status) == ("baai/large", "unavailable")
    embedder.at_work = PULLED
    assert chosen.embed(["a"]).shape == (1, 2)
    assert (chosen.model, chosen.status().status) == ("BAAI/Large@7", "ready")


def test_without_a_wish_the_model_that_was_loaded_first_stays_the_chosen_one():
    embedder = Loading(INSTALLED)
    chosen = ChosenEmbedder(embedder, None)
    assert chosen.model == "riglm/small@1"
    embedder.at_work = PULLED
    with pytest.raises(EmbedderUnavailableError, match="BAAI/Large was loaded in the place of riglm/small"):
        chosen.embed(["a"])
    assert chosen.model == "riglm/small"
    embedder.at_work = INSTALLED
    chosen.embed(["a"])
    embedder.at_work = PULLED
    assert chosen.model == "riglm/small@1"
