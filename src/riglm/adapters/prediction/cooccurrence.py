"""Which tools are used in the same sessions: the strategy `cooccurrence`, and a statistic of the hybrid."""

from typing import Final

import numpy as np

from riglm.adapters.prediction.counts import Counts
from riglm.adapters.prediction.features import Features
from riglm.adapters.prediction.frequency import Frequency
from riglm.domain.prediction import Prediction, Scores, Situation
from riglm.ports.predictor import PredictorPort

_FADING: Final = 0.9
"""How much a tool in use counts next to one that was used later."""

_DISTANT: Final = 0.95
"""How much two tools count together, to the power of the number of calls between them."""


class Company:
    """How often a tool joins a session in which another was used, next of all new ones or ever, by their distance."""

    def __init__(self) -> None:
        self._next = Counts()
        self._together = Counts()
        self._sessions = Counts(most_rows=1, most_tools=4096, most_total=1e6)

    def learn(self, features: Features, tool: str, weight: float) -> None:
        """Count the tools in use when a session uses a tool first; each call between the two makes it count less."""
        if tool in features.ages:
            return
        self._sessions.add("", tool, weight)
        for other in features.latest:
            near = weight * _DISTANT ** features.ages[other]
            self._next.add(other, tool, near)
            self._together.add(other, tool, near)
            self._together.add(tool, other, near)

    def shares(self, features: Features, otherwise: Scores) -> tuple[Scores, Scores]:
        """How probable each candidate is to come next, and to come soon, by the tools in use, the latest most."""
        if not features.latest:
            return otherwise, otherwise
        following, ever = np.zeros(features.size), np.zeros(features.size)
        sessions = self._sessions.row("")
        total = 0.0
        for place, tool in enumerate(features.latest):
            weight = _FADING**place
            total += weight
            following += weight * self._next.share(features, tool, otherwise)
            beside = features.spread(self._together.row(tool)) + otherwise
            ever += weight * beside / (sessions.get(tool, 0.0) + 1.0)
        return following / total, np.minimum(ever / total, 1.0)


class CooccurrencePredictor(PredictorPort):
    """Tools that share sessions with those in use, weighted by distance; with none in use, what is used often."""

    def __init__(self) -> None:
        self._frequency = Frequency()
        self._company = Company()

    def learn(self, situation: Situation, tool: str, weight: float = 1.0) -> None:
        """Count the company of a call."""
        features = Features(situation)
        self._frequency.learn(features, tool, weight)
        self._company.learn(features, tool, weight)

    def predict(self, situation: Situation, *, explain: bool = False) -> Prediction:
        """Log-odds against chance."""
        features = Features(situation)
        use = self._frequency.share(features)
        _, ever = self._company.shares(features, use)
        base, scores = features.lift(use), features.lift(ever)
        parts = {"use": base, "company": scores - base} if explain else {}
        return Prediction(scores=scores, contributions=parts, confidence=self._frequency.confidence())
