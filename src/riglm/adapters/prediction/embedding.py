"""What fits the context: the strategy `embedding`, and signals of the hybrid."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from riglm.adapters.prediction.features import Features
from riglm.adapters.prediction.novelty import finite, relevant, standard
from riglm.domain.prediction import Prediction, Scores, Situation
from riglm.ports.predictor import PredictorPort

_NAMES: Final = ("described", "learned", "relevant")


class EmbeddingPredictor(PredictorPort):
    """Ranks by relevance to the context alone, which comes with the situation; learns nothing by itself."""

    def learn(self, situation: Situation, tool: str, weight: float = 1.0) -> None:
        """Nothing is learned here: what contexts teach is kept as learned pairs."""

    def predict(self, situation: Situation, *, explain: bool = False) -> Prediction:
        """The combined relevance, zeros without a context."""
        relevance = situation.relevance
        if relevance is None:
            return Prediction(scores=np.zeros(len(situation.candidates)))
        scores = finite(relevance.combined)
        return Prediction(
            scores=scores,
            contributions={"relevant": scores} if explain else {},
            confidence=min(max(relevance.confidence, 0.0), 1.0),
        )


def signals(features: Features) -> Mapping[str, Scores]:
    """`described`, `learned` and `relevant`, both: each against its mean over the candidates."""
    relevance = features.situation.relevance
    if relevance is None:
        return {name: np.zeros(features.size) for name in _NAMES}
    parts = (relevance.described, relevance.learned, relevant(relevance))
    return {name: standard(part) / 2 for name, part in zip(_NAMES, parts, strict=True)}
