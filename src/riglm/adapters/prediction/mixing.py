"""Learns online which of several explanations tends to be right."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from riglm.adapters.prediction.weighing import Matrix
from riglm.domain.prediction import Scores

_MOST_CALLS: Final = 1000.0
_LEAST: Final = 1e-9


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
        made = explanations * (self.shares / max(float(self.shares[present].sum()), _LEAST))[:, None]
        mixed = made.sum(0)
        return mixed, made / np.maximum(mixed, _LEAST)

    def learn(self, explanations: Matrix, target: int, weight: float) -> None:
        """The candidate at `target` was right: the weight of rows that expected it grows, relative to the others."""
        present = explanations.any(1)
        made = explanations[:, target] * self.shares
        total, spoken = float(made.sum()), float(self._counts[present].sum())
        if total < _LEAST or spoken < _LEAST:
            return
        self._counts[~present] *= (spoken + weight) / spoken
        self._counts += weight * made / total
        if self._counts.sum() > _MOST_CALLS:
            self._counts *= 0.5
