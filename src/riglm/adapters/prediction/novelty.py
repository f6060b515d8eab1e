"""Which tool comes new to a session: explanations, and their mixture."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from riglm.adapters.prediction.features import Features
from riglm.adapters.prediction.usage_statistics import CooccurrenceCounts, Frequency, MarkovChains, ServerTransitions
from riglm.adapters.prediction.weighing import Matrix, Mixture
from riglm.domain.prediction import Context, Relevance, Scores

EXPLANATIONS: Final[Mapping[str, tuple[str, float]]] = {
    "chance": ("frequency", 0.02),
    "follows": ("sequence", 0.2),
    "joins": ("cooccurrence", 0.06),
    "company": ("cooccurrence", 0.06),
    "server": ("server", 0.09),
    "near": ("server", 0.18),
    "near_any": ("server", 0.06),
    "rank": ("context", 0.1),
    "described": ("context", 0.06),
    "near_described": ("context", 0.12),
    "learned": ("learned", 0.08),
}
"""What may explain a fresh tool: the family of its signal, and its share of the mixture at the start."""

_RANK_OFFSET: Final = 3.0
_RANK_POWER: Final = 1.5
_DESCRIBED_SHARE: Final = 0.6
_DESCRIBED_POWER: Final = 1.5
_NEAR_POWER: Final = 1.0
_MIN_LEARNED: Final = 1e-6
_MAX_BELOW: Final = 4.0
_MAX_ABOVE: Final = 8.0


class Novelty:
    """The probability of each candidate, given that the next tool is one that the session has not used."""

    def __init__(
        self,
        *,
        frequency: Frequency,
        order: MarkovChains,
        cooccurrences: CooccurrenceCounts,
        home: ServerTransitions,
        without: Collection[str] = (),
    ) -> None:
        self._frequency = frequency
        self._order = order
        self._cooccurrences = cooccurrences
        self._home = home
        self._mixture = Mixture(
            {name: 0.0 if family in without else share for name, (family, share) in EXPLANATIONS.items()}
        )

    def learn(self, explanations: Matrix, target: int, weight: float) -> None:
        """A fresh tool was called; `explanations` are those of the situation before."""
        self._mixture.learn(explanations, target, weight)

    def mix(self, explanations: Matrix) -> tuple[Scores, Matrix]:
        """The mixed probabilities, and the part of each explanation in them."""
        return self._mixture.mix(explanations)

    def explanations(self, features: Features) -> Matrix:
        """A distribution over the fresh candidates by each explanation; zeros where it has nothing to say."""
        use = self._frequency.fresh_share(features)
        joins, cooccurrences = self._cooccurrences.shares(features, use)
        server, inside = self._home.shares(features)
        near = self._home.near(features)
        near_any = near / np.bincount(features.servers, minlength=len(features.server_names))[features.servers]
        found = {
            "chance": features.uniform,
            "follows": self._order.share(features, fresh=True),
            "joins": joins,
            "company": cooccurrences,
            "server": server * inside,
            "near": near * inside,
            "near_any": near_any,
            **_by_context(features.prediction_input.relevance, near_any),
        }
        return _fresh_only(features, found)


def _by_context(relevance: Relevance | None, near: Scores) -> Mapping[str, Scores]:
    if relevance is None:
        return {}
    place = np.empty(near.size)
    place[np.argsort(-relevant(relevance), kind="stable")] = np.arange(near.size)
    described = standard(relevance.described)
    return {
        "rank": (_RANK_OFFSET + place) ** -_RANK_POWER,
        "described": np.exp(_DESCRIBED_POWER * described),
        "near_described": near * np.exp(_NEAR_POWER * described),
        "learned": np.maximum(finite(relevance.learned), 0.0) + _MIN_LEARNED,
    }


def _fresh_only(features: Features, found: Mapping[str, Scores]) -> Matrix:
    """Each explanation as a distribution over the fresh candidates; zeros where it has nothing to say."""
    table = np.stack([found.get(name, np.zeros(features.size)) for name in EXPLANATIONS])
    table[:, features.used] = 0.0
    totals = table.sum(1, keepdims=True)
    return table / np.where(totals > 0, totals, 1.0)


def relevant(relevance: Relevance) -> Scores:
    """Descriptions of tools and what contexts taught, 0.6 to 0.4: everything else is weighed next to it."""
    found: Scores = _DESCRIBED_SHARE * finite(relevance.described) + (1 - _DESCRIBED_SHARE) * finite(relevance.learned)
    return found


def finite(values: Scores) -> Scores:
    """The values with what is not a number made 0, and what is beyond all bounds 1."""
    numbers = np.asarray(values, np.float64)
    return numbers if np.isfinite(numbers).all() else np.nan_to_num(numbers, nan=0.0, posinf=1.0, neginf=0.0)


def standard(values: Scores) -> Scores:
    """The values in standard deviations from their mean, within bounds; zeros when all are alike."""
    values = finite(values)
    deviations = values - values.mean()
    spread = float(np.sqrt(np.square(deviations).mean()))  # the mean is taken once
    if spread < 1e-9:
        return np.zeros_like(values)
    found: Scores = np.clip(deviations / spread, -_MAX_BELOW, _MAX_ABOVE)
    return found


_SURE: Final = 2.0
"""Standard errors by which the model must be ahead."""
_MIN_SPREAD: Final = 2.0
"""Added to the sum of squares, so that a few lucky calls prove nothing."""
_MAX_CALLS: Final = 400.0
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


class FirstCallReranker:
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
        relevance = features.prediction_input.relevance
        if relevance is None or features.calls or self._ahead > _SURE * float(np.sqrt(self._squares + _MIN_SPREAD)):
            return None
        return _best_first(relevance.combined)

    def learn(self, features: Features, scores: Scores, target: int, weight: float) -> None:
        """After these scores of the model, the candidate at `target` was called."""
        relevance, context = features.prediction_input.relevance, features.prediction_input.context
        if features.calls or relevance is None or (context is not None and context is self._last):
            return
        self._last = context
        by_model = int((scores > scores[target]).sum())
        by_relevance = int(np.flatnonzero(_best_first(relevance.combined) == target)[0])
        difference = 1 / np.log2(2 + by_model) - 1 / np.log2(2 + by_relevance)
        self._ahead += weight * difference
        self._squares += weight * difference**2
        self._calls += weight
        if self._calls > _MAX_CALLS:
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
