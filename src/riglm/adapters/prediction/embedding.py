"""The strategy `embedding`, and the baseline of evaluations."""

from typing import Final

import numpy as np

from riglm.adapters.prediction.counts import Counts, IndexedInput, finite, guess, log_odds
from riglm.domain.prediction import Prediction, PredictionInput, Scores
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


_UNSEEN: Final = 1e-3
_MARKOV_TRUST: Final = 2.0


class BlendPredictor(PredictorPort):
    """Markov of order 2, recent tools, shared sessions, the same server and rank by the context, with fixed weights.

    The public baseline of next-tool evaluations; the context is ranked by descriptions of tools.
    """

    def __init__(self) -> None:
        self._use = Counts(most_rows=1, most_tools=10_000, most_total=1e9)
        self._after = Counts(most_rows=100_000, most_tools=10_000, most_total=1e9, most_entries=1_000_000)
        self._together = Counts(most_rows=10_000, most_tools=10_000, most_total=1e9, most_entries=1_000_000)

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        calls = prediction_input.calls
        self._use.add("", tool)
        for order in range(1, min(len(calls), 2) + 1):
            self._after.add(calls[-order:], tool)
        if tool not in calls:
            self._together.add(tool, tool)
            for other in dict.fromkeys(calls):
                self._together.add(other, tool)
                self._together.add(tool, other)

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
        prior: Scores = (indexed.spread(self._use.row("")) + _UNSEEN) / (self._use.total("") + _UNSEEN * indexed.size)
        return prior

    def _markov(self, indexed: IndexedInput, prior: Scores) -> Scores:
        found = prior
        for order in range(1, min(len(indexed.calls), 2) + 1):
            past = indexed.calls[-order:]
            if order == 1 or self._after.row(past):
                counts, total = indexed.spread(self._after.row(past)), self._after.total(past)
                found = (counts + _MARKOV_TRUST * found) / (total + _MARKOV_TRUST)
        return found

    def _shared(self, indexed: IndexedInput, prior: Scores) -> Scores:
        found = np.zeros(indexed.size)
        for tool in indexed.ages:
            row = self._together.row(tool)
            found += indexed.spread(row) / max(row.get(tool, 0.0), 1.0)
        return found / max(len(indexed.ages), 1) + _UNSEEN * prior


def _home(indexed: IndexedInput) -> Scores:
    last: dict[str, float] = {}
    for age, tool in enumerate(reversed(indexed.calls[-20:])):
        last.setdefault(indexed.server_of(tool) or tool, 0.9**age)
    servers = indexed.prediction_input.servers
    return np.array([last.get(servers.get(tool, "") or tool, 0.0) for tool in indexed.prediction_input.candidates])
