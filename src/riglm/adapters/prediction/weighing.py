"""Learns online how much each signal is worth."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from riglm.domain.prediction import Scores

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

_LARGEST_STEP: Final = 2.0
_SUREST: Final = 8.0
_WORTH_UNIT: Final = 4.0


class Weights:
    """Weights that start from `prior`, are drawn back to it by `pull`, and move by AdaGrad with `rate`."""

    def __init__(self, prior: Sequence[float], *, rate: float, pull: float) -> None:
        self._prior = np.array(prior, np.float64)
        self.values = self._prior.copy()
        self._squares = np.ones_like(self._prior)
        self._rate = rate
        self._pull = pull

    def descend(self, gradient: NDArray[np.float64]) -> None:
        """Take one step against a gradient; what is not finite is no step."""
        gradient = np.clip(np.nan_to_num(gradient), -_LARGEST_STEP, _LARGEST_STEP)
        self._squares += gradient**2
        self.values -= self._rate * (gradient + self._pull * (self.values - self._prior)) / np.sqrt(self._squares)


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    """What the signals come to: `parts` by signal and candidate, and what the choice between fresh and used adds."""

    parts: Matrix
    nest: Scores

    @property
    def scores(self) -> Scores:
        """The logarithm of the probability of each candidate."""
        found: Scores = self.parts.sum(0) + self.nest
        return found


class Weighing:
    """A nested multinomial logistic model over the candidates.

    First it is decided whether the next tool is fresh, not yet used by the session, or one of the used; then which
    one, by a softmax within either nest with separate weights: what shows which tool is repeated is not what shows
    which comes new. The first decision sees `hints` and how much either nest has to offer (its logarithm of the sum of
    exponentials).
    """

    def __init__(
        self, fresh: Sequence[float], used: Sequence[float], nest: Sequence[float], *, rate: float, pull: float
    ) -> None:
        self.fresh = Weights(fresh, rate=rate, pull=pull)
        self.used = Weights(used, rate=rate, pull=pull)
        self.nest = Weights(nest, rate=rate, pull=pull)

    def weigh(self, signals: Matrix, used: Mask, hints: Sequence[float]) -> Weighed:
        """Turn signals (rows) over candidates (columns) into log-probabilities."""
        parts = signals * np.where(used, self.used.values[:, None], self.fresh.values[:, None])
        sums = parts.sum(0)
        fresh_worth, used_worth = _worth(sums[~used]), _worth(sums[used])
        likely = self._fresh_probability(used, hints, fresh_worth, used_worth)
        return Weighed(parts, np.where(used, np.log(1 - likely) - used_worth, np.log(likely) - fresh_worth))

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
