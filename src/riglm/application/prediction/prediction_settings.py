"""The part of the configuration that prediction depends on and that may change while riglm runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from riglm.ports.predictor import PredictorPort

LearningScope = Literal["principal", "tenant", "instance"]
"""Who learns from whom: each principal for itself, or all who use this riglm together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The strategy that predicts: its name, its key, and what makes one that has learned nothing yet, and may block.

    Strategies of equal keys are of the same name and options.
    """

    name: str
    key: str
    make: Callable[[], PredictorPort] = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionSettings:
    """How to predict, and for whom together.

    At most `most_pairs` learned pairs are kept. Warm sets last for `period` seconds.
    """

    strategy: Strategy
    scope: LearningScope
    most_pairs: int
    period: float

    @property
    def by_principal(self) -> bool:
        """Whether each principal learns for itself."""
        return self.scope == "principal"

    @property
    def scope_name(self) -> str:
        """What warm sets of this scope are marked with."""
        return "principal: " if self.by_principal else "all: "
