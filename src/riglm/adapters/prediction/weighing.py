"""Learns online how much each signal is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from riglm.domain.prediction import Scores

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

_MAX_STEP: Final = 2.0
_SUREST: Final = 8.0
_WORTH_UNIT: Final = 4.0


class AdaGradWeights:
    """Weights that start from `prior`, are drawn back to it by `pull`, and move by AdaGrad with `rate`."""

    def __init__(self, prior: Sequence[float], *, rate: float, pull: float) -> None:
        self._prior = np.array(prior, np.float64)
        self.values = self._prior.copy()
        self._squares = np.ones_like(self._prior)
        self._rate = rate
        self._pull = pull

    def descend(self, gradient: NDArray[np.float64]) -> None:
        """Take one step against a gradient; what is not finite is no step."""
        gradient = np.clip(np.nan_to_num(gradient), -_MAX_STEP, _MAX_STEP)
        self._squares += gradient**2
        self.values -= self._rate * (gradient + self._pull * (self.values - self._prior)) / np.sqrt(self._squares)


@dataclass(frozen=True, slots=True, eq=False)
class WeightedScores:
    """What the signals come to: `parts` by signal and candidate, and what the choice between fresh and used adds."""

    parts: Matrix
    nest: Scores

    @property
    def scores(self) -> Scores:
        """The logarithm of the probability of each candidate."""
        found: Scores = self.parts.sum(0) + self.nest
        return found


class SignalWeighting:
    """A nested multinomial logistic model over the candidates.

    First it is decided whether the next tool is fresh, not yet used by the session, or one of the used; then which
    one, by a softmax within either nest with separate weights: what shows which tool is repeated is not what shows
    which comes new. The first decision sees `hints` and how much either nest has to offer (its logarithm of the sum of
    exponentials).
    """

    def __init__(
        self, fresh: Sequence[float], used: Sequence[float], nest: Sequence[float], *, rate: float, pull: float
    ) -> None:
        self.fresh = AdaGradWeights(fresh, rate=rate, pull=pull)
        self.used = AdaGradWeights(used, rate=rate, pull=pull)
        self.nest = AdaGradWeights(nest, rate=rate, pull=pull)

    def weigh(self, signals: Matrix, used: Mask, hints: Sequence[float]) -> WeightedScores:
        """Turn signals (rows) over candidates (columns) into log-probabilities."""
        parts = signals * np.where(used, self.used.values[:, None], self.fresh.values[:, None])
        sums = parts.sum(0)
        fresh_worth, used_worth = _worth(sums[~used]), _worth(sums[used])
        likely = self._fresh_probability(used, hints, fresh_worth, used_worth)
        return WeightedScores(parts, np.where(used, np.log(1 - likely) - used_worth, np.log(likely) - fresh_worth))

    def learn(self, signals: Matrix, used: Mask, hints: Sequence[float], target: int, weight: float) -> None:
        """The candidate at `target` was called."""
        chosen = bool(used[target])
        if used.any() and not used.all():
            fresh_worth = _worth(self.fresh.values @ signals[:, ~used])
            used_worth = _worth(self.used.values @ signals[:, used])
            likely = self._fresh_probability(used, hints, fresh_worth, used_worth)
            self.nest.descend(weight * (likely - (not chosen)) * _gate(hints, fresh_worth, used_worth))
        weights, members = (self.used, used) if chosen else (self.fresh, ~used)
        inside = signals[:, members]
        sums = weights.values @ inside
        error = np.exp(sums - _worth(sums))
        error[int(members[:target].sum())] -= 1.0
        weights.descend(weight * (inside @ error))

    def _fresh_probability(self, used: Mask, hints: Sequence[float], fresh_worth: float, used_worth: float) -> float:
        odds = float(self.nest.values @ _gate(hints, fresh_worth, used_worth))
        if not used.any():
            odds = _SUREST
        elif used.all():
            odds = -_SUREST
        return float(1 / (1 + np.exp(-np.clip(odds, -_SUREST, _SUREST))))


def _gate(hints: Sequence[float], fresh_worth: float, used_worth: float) -> NDArray[np.float64]:
    return np.array((1.0, *hints, fresh_worth / _WORTH_UNIT, used_worth / _WORTH_UNIT))


def _worth(sums: Scores) -> float:
    if not sums.size:
        return 0.0
    best = float(sums.max())
    return best + float(np.log(np.exp(sums - best).sum()))


_MAX_CALLS: Final = 1000.0
_MIN: Final = 1e-9


class Mixture:
    """A mixture of probability distributions, its shares learned by online expectation and maximisation.

    One explanation that is sure is enough here, where a product would need all to agree. The shares start from `prior`
    as if it came from `prior_calls`, and remember about the last thousand.
    """

    def __init__(self, prior: Mapping[str, float], *, prior_calls: float = 100.0) -> None:
        shares = np.array(list(prior.values()), np.float64)
        self._counts = shares / shares.sum() * prior_calls

    @property
    def shares(self) -> Scores:
        """How much each explanation counts; together 1."""
        found: Scores = self._counts / self._counts.sum()
        return found

    def mix(self, explanations: Matrix) -> tuple[Scores, Matrix]:
        """The mixed distribution over the candidates, and what part of each probability an explanation has made.

        Explanations (rows) that are all zero contribute nothing, and the others replace them.
        """
        present = explanations.any(1)
        made = explanations * (self.shares / max(float(self.shares[present].sum()), _MIN))[:, None]
        mixed = made.sum(0)
        return mixed, made / np.maximum(mixed, _MIN)

    def learn(self, explanations: Matrix, target: int, weight: float) -> None:
        """The candidate at `target` was right: the weight of rows that expected it grows, relative to the others."""
        present = explanations.any(1)
        made = explanations[:, target] * self.shares
        total, spoken = float(made.sum()), float(self._counts[present].sum())
        if total < _MIN or spoken < _MIN:
            return
        self._counts[~present] *= (spoken + weight) / spoken
        self._counts += weight * made / total
        if self._counts.sum() > _MAX_CALLS:
            self._counts *= 0.5


FIRST: Final = 15
"""A list of the usual length."""

KEPT: Final = 4
"""Maximum number of used tools that are kept in it."""


def kept(lifted: Scores, likely: Scores, used: Mask) -> Scores:
    """The lifted scores, with the best used candidates that are among the first by likelihood still among them.

    The first are `FIRST`; at most `KEPT` candidates are raised, and no further than needed.
    """
    if not used.any() or likely.size <= FIRST:
        return lifted
    bar = np.partition(likely, -FIRST)[-FIRST]
    columns = np.flatnonzero(used & (likely >= bar))
    best = columns[np.argsort(-likely[columns], kind="stable")[:KEPT]]
    fresh, before = lifted[~used], FIRST - best.size
    if not best.size or fresh.size <= before:
        return lifted
    found = lifted.copy()
    floor = float(np.partition(fresh, -before - 1)[-before - 1])
    for column in best[::-1]:
        floor = float(np.nextafter(floor, np.inf))
        found[column] = floor = max(float(found[column]), floor)
    return found


_BINS: Final = 10
_PRIOR_CALLS: Final = 10.0
_RELIABILITY_MOST_CALLS: Final = 500.0


class ProbabilityCalibrator:
    """Corrects a probability by how often such probabilities came true recently."""

    def __init__(self) -> None:
        self._hits = [0.0] * _BINS
        self._calls = [0.0] * _BINS

    def of(self, probability: float) -> float:
        """The corrected probability; the given one while nothing is known."""
        probability = min(max(probability, 0.0), 1.0)
        place = _bin(probability)
        return (self._hits[place] + _PRIOR_CALLS * probability) / (self._calls[place] + _PRIOR_CALLS)

    def learn(self, probability: float, came_true: bool, weight: float) -> None:
        """What was expected with this probability happened, or not."""
        place = _bin(min(max(probability, 0.0), 1.0))
        self._hits[place] += weight * came_true
        self._calls[place] += weight
        if self._calls[place] > _RELIABILITY_MOST_CALLS:
            self._hits[place] /= 2
            self._calls[place] /= 2


def _bin(probability: float) -> int:
    return min(int(probability * _BINS), _BINS - 1)
