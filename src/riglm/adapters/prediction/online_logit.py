"""A conditional logit that is learned online."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from riglm.domain.prediction import Scores

Matrix = NDArray[np.float64]


class OnlineLogit:
    """A conditional logit: p_i = exp(w·x_i) / sum_j exp(w·x_j) over alternatives i with features x_i.

    Learns by the sequential Laplace approximation (Spiegelhalter and Lauritzen 1990), whose steps are those of the
    online Newton method (Hazan, Agarwal and Kale 2007). The weights have a normal distribution with mean w and
    precision A; it starts at the default weights w0 with A = `precision` · I. A choice t moves both:

        m = sum_i p_i x_i,   A += sum_i p_i x_i x_i' - m m',   w -= A^-1 (m - x_t)

    Before each step A and w are drawn towards their start by the share `forgetting`, so that A is bounded and about
    the last 1 / `forgetting` choices count. A weight below its `least` is set to it after each step.
    """

    def __init__(
        self,
        weights: Sequence[float],
        *,
        precision: float = 5.0,
        forgetting: float = 1e-3,
        least: Scores | float = -np.inf,
    ) -> None:
        self._start = np.array(weights, np.float64)
        self.weights = self._start.copy()
        self._prior = precision * np.eye(len(self._start))
        self._precision = self._prior.copy()
        self._forgetting = forgetting
        self._least = least

    def learn(self, features: Matrix, chosen: int, weight: float) -> None:
        """Learn that the alternative at `chosen` was taken; `features` has a row per feature."""
        p = np.exp(log_softmax(self.weights @ features))
        mean = features @ p
        rate = self._forgetting
        pull = rate * self._prior @ (self.weights - self._start)
        self._precision += rate * (self._prior - self._precision)
        self._precision += weight * ((features * p) @ features.T - np.outer(mean, mean))
        step = np.linalg.solve(self._precision, weight * (mean - features[:, chosen]) + pull)
        self.weights = np.maximum(self.weights - step, self._least)


def log_softmax(values: Scores) -> Scores:
    """Return values - log(sum(exp(values)))."""
    if not values.size:
        return values
    shifted = values - values.max()
    found: Scores = shifted - np.log(np.exp(shifted).sum())
    return found
