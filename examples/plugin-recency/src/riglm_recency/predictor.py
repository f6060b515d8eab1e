"""Predicts that what was used lately is used again."""

import numpy as np

from riglm.domain.prediction import Prediction, PredictionInput
from riglm.ports.predictor import PredictorPort

MOST_TOOLS = 5_000
"""Tools beyond so many are forgotten, those that were used the longest ago first."""


class RecencyPredictor(PredictorPort):
    """Scores each tool by its last use in any session: 1 now, a half after `half_life` seconds."""

    def __init__(self, half_life: float = 3600.0) -> None:
        if half_life <= 0:
            raise ValueError("half_life is a number of seconds above 0")
        self._half_life = half_life
        self._last_use: dict[str, float] = {}

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        """Note the time."""
        self._last_use.pop(tool, None)
        self._last_use[tool] = prediction_input.time
        if len(self._last_use) > MOST_TOOLS:
            del self._last_use[next(iter(self._last_use))]

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        """One score for each candidate."""
        never = -np.inf
        last = np.array([self._last_use.get(tool, never) for tool in prediction_input.candidates], dtype=np.float64)
        scores = np.exp2(np.minimum(last - prediction_input.time, 0.0) / self._half_life)
        return Prediction(
            scores=scores,
            contributions={"recency": scores.copy()} if explain else {},
            confidence=float(scores.max(initial=0.0)),
            log_odds={"recency": np.log(np.maximum(scores, 1e-4))},
        )
