"""The strategy `embedding`."""

import numpy as np

from riglm.adapters.prediction.counts import finite, guess, log_odds
from riglm.domain.prediction import Prediction, PredictionInput
from riglm.ports.predictor import PredictorPort


class EmbeddingPredictor(PredictorPort):
    """Ranks by relevance to the context alone, which comes with the situation; learns nothing by itself."""

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        """Nothing is learned here: what contexts teach is kept as learned pairs."""

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        relevance = prediction_input.relevance
        if relevance is None:
            unknown = np.zeros(len(prediction_input.candidates))
            return Prediction(scores=unknown, log_odds={"relevant": unknown})
        parts = {"relevant": log_odds(finite(relevance.combined))}
        return guess(parts, min(max(relevance.confidence, 0.0), 1.0), explain=explain)
