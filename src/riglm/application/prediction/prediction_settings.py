"""The part of the configuration that prediction depends on and that may change while riglm runs."""

from dataclasses import dataclass
from typing import Literal

from riglm.application.prediction.warm_sets import Strategy

LearningScope = Literal["principal", "tenant", "instance"]
"""Who learns from whom: each principal for itself, or all who use this riglm together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionSettings:
    """How to predict, and for whom together; warm sets last for `period` seconds."""

    strategy: Strategy
    scope: LearningScope
    most_pairs: int
    period: float

    @property
    def by_principal(self) -> bool:
        """Whether each principal learns for itself."""
        return self.scope == "principal"
