"""The baseline of next-tool evaluations: an untuned sum of signals."""

from collections import Counter, defaultdict
from typing import Final

import numpy as np

from riglm.adapters.prediction.counts import IndexedInput, finite, log_odds
from riglm.domain.prediction import Prediction, PredictionInput, Scores
from riglm.ports.predictor import PredictorPort

_UNSEEN: Final = 1e-3
_MARKOV_TRUST: Final = 2.0


class BlendPredictor(PredictorPort):
    """Markov of order 2, recent tools, shared sessions, the same server and rank by the context, with fixed weights.

    The context is ranked by descriptions of tools.
    """

    def __init__(self) -> None:
        self._use: Counter[str] = Counter()
        self._after: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        self._together: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        calls = prediction_input.calls
        self._use[tool] += 1
        for order in range(1, min(len(calls), 2) + 1):
            self._after[calls[-order:]][tool] += 1
        if tool not in calls:
            self._together[tool][tool] += 1
            for other in dict.fromkeys(calls):
                self._together[other][tool] += 1
                self._together[tool][other] += 1

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        indexed = IndexedInput(prediction_input)
        if not indexed.size:
            return Prediction(scores=np.zeros(0), log_odds={})
        prior = self._prior(indexed)
        parts = {
            "sequence": self._markov(indexed, prior),
            "recency": 0.1 * indexed.spread({tool: 0.8**age for tool, age in indexed.ages.items()}),
            "cooccurrence": 0.1 * self._shared(indexed, prior),
            "server": 0.02 * _home(indexed),
            "context": np.zeros(indexed.size),
        }
        if prediction_input.relevance is not None:
            place = np.empty(indexed.size)
            place[np.argsort(-finite(prediction_input.relevance.described), kind="stable")] = np.arange(indexed.size)
            parts["context"] = 0.3 / (10 + place)
        scores: Scores = sum(parts.values(), np.zeros(indexed.size))
        return Prediction(
            scores=scores, contributions=parts if explain else {}, confidence=0.5, log_odds={"blend": log_odds(scores)}
        )

    def _prior(self, indexed: IndexedInput) -> Scores:
        prior: Scores = (indexed.spread(self._use) + _UNSEEN) / (self._use.total() + _UNSEEN * indexed.size)
        return prior

    def _markov(self, indexed: IndexedInput, prior: Scores) -> Scores:
        found = prior
        for order in range(1, min(len(indexed.calls), 2) + 1):
            after = self._after.get(indexed.calls[-order:], Counter())
            if order == 1 or after:
                found = (indexed.spread(after) + _MARKOV_TRUST * found) / (after.total() + _MARKOV_TRUST)
        return found

    def _shared(self, indexed: IndexedInput, prior: Scores) -> Scores:
        found = np.zeros(indexed.size)
        for tool in indexed.ages:
            together = self._together.get(tool, Counter())
            found += indexed.spread(together) / max(together[tool], 1)
        return found / max(len(indexed.ages), 1) + _UNSEEN * prior


def _home(indexed: IndexedInput) -> Scores:
    last: dict[str, float] = {}
    for age, tool in enumerate(reversed(indexed.calls[-20:])):
        last.setdefault(indexed.server_of(tool) or tool, 0.9**age)
    servers = indexed.prediction_input.servers
    return np.array([last.get(servers.get(tool, "") or tool, 0.0) for tool in indexed.prediction_input.candidates])
