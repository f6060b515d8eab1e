"""The part of the configuration that prediction depends on and that may change while riglm runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from riglm.ports.predictor import PredictorPort

LearningScope = Literal["principal", "tenant", "instance"]
"""Who learns from whom: each principal for itself, or all who use this riglm together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionSettings:
    """How to predict, for whom together, and how much to show.

    `predictor` is the name of the strategy and `make_predictor` makes one, and may block. Lists are to hold the share
    `coverage` of the next calls with at least `least` and at most `most` tools; warm sets last for `period` seconds.
    """

    predictor: str
    make_predictor: Callable[[], PredictorPort]
    scope: LearningScope
    most_pairs: int
    coverage: float
    least: int
    most: int
    period: float

    @property
    def by_principal(self) -> bool:
        """Whether each principal learns for itself."""
        return self.scope == "principal"
