"""Which tools are called next."""

from abc import abstractmethod
from typing import Protocol

from riglm.domain.prediction import Prediction, Situation


class PredictorPort(Protocol):
    """An online learner: `learn` from what happened, `predict` from what is known now.

    Works before it has learned anything, on tools that it never saw, and in bounded memory over any stream. Options are
    keyword arguments of the constructor, all with defaults. Called on the event loop: no I/O, and quick.
    """

    @abstractmethod
    def learn(self, situation: Situation, tool: str, weight: float = 1.0) -> None:
        """A call of `tool` was made in `situation`; `weight` is how informative it is.

        The tool need not be among the candidates. What is passed is not kept or changed.
        """

    @abstractmethod
    def predict(self, situation: Situation, *, explain: bool = False) -> Prediction:
        """One finite score for each candidate; with `explain`, the contribution of each signal.

        Changes nothing: asking twice gives the same answer. No candidates, no scores.
        """
