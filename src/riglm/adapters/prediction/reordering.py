"""Where the context decides the order, instead of what the model expects of the next call."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from riglm.adapters.prediction.features import Features
from riglm.adapters.prediction.novelty import finite
from riglm.domain.prediction import Context, Relevance, Scores

_SURE: Final = 2.0
"""Standard errors by which the model must be ahead."""
_LEAST_SPREAD: Final = 2.0
"""Added to the sum of squares, so that a few lucky calls prove nothing."""
_MOST_CALLS: Final = 400.0
_ALIKE: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """Scores, and the logarithms of the probabilities that go with their places."""

    scores: Scores
    log_probabilities: Scores

    def given_out(self, order: NDArray[np.intp] | None) -> "Ranked":
        """The same numbers, given to the candidates in another order, best first; None leaves all as it is."""
        if order is None:
            return self
        scores, log_probabilities = np.empty_like(self.scores), np.empty_like(self.log_probabilities)
        before = np.argsort(-self.scores, kind="stable")
        scores[order], log_probabilities[order] = self.scores[before], self.log_probabilities[before]
        return Ranked(scores, log_probabilities)


class Opening:
    """Ranks by the context's relevance until the model has proved better for first calls.

    What else the model knows then is only what was used before, which misleads where tools do not recur. Both orders
    are compared on each session's first call, by the discounted gain of the called tool; a context that is learned
    several times in a row counts once, since its tools are what the model has just seen.
    """

    def __init__(self) -> None:
        self._ahead = 0.0
        self._squares = 0.0
        self._calls = 0.0
        self._last: Context | None = None

    def order(self, features: Features) -> NDArray[np.intp] | None:
        """The candidates, best first, where relevance decides; None where the model does."""
        relevance = features.situation.relevance
        if relevance is None or features.calls or self._ahead > _SURE * float(np.sqrt(self._squares + _LEAST_SPREAD)):
            return None
        return _best_first(relevance.combined)

    def learn(self, features: Features, scores: Scores, target: int, weight: float) -> None:
        """After these scores of the model, the candidate at `target` was called."""
        relevance, context = features.situation.relevance, features.situation.context
        if features.calls or relevance is None or (context is not None and context is self._last):
            return
        self._last = context
        by_model = int((scores > scores[target]).sum())
        by_relevance = int(np.flatnonzero(_best_first(relevance.combined) == target)[0])
        difference = 1 / np.log2(2 + by_model) - 1 / np.log2(2 + by_relevance)
        self._ahead += weight * difference
        self._squares += weight * difference**2
        self._calls += weight
        if self._calls > _MOST_CALLS:
            self._ahead, self._squares, self._calls = self._ahead / 2, self._squares / 2, self._calls / 2


def for_whole_context(scores: Scores, relevance: Relevance) -> NDArray[np.intp]:
    """The candidates, best first: the surer the context, the more by what was of use in contexts like it.

    What is called next is how a session goes on, not what all of it needs.
    """
    sure = min(max(relevance.confidence, 0.0), 1.0)
    fit = sure * _standard(relevance.learned) + (1 - sure) * _standard(scores)
    return np.lexsort((-scores, -fit))


def _best_first(values: Scores) -> NDArray[np.intp]:
    return np.argsort(-finite(values), kind="stable")


def _standard(values: Scores) -> Scores:
    """In standard deviations from the mean, however far; zeros when all are alike."""
    numbers = finite(values)
    spread = float(numbers.std())
    found: Scores = (numbers - numbers.mean()) / spread if spread > _ALIKE else np.zeros_like(numbers)
    return found
