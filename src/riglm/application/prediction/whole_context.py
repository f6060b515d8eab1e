"""From what is called next to what a context needs: a list that is made for a context outlasts the next call."""

from dataclasses import replace
from typing import Final

import numpy as np

from riglm.domain.prediction import Prediction, Relevance, Scores

_LEAST_SPREAD: Final = 1e-9


def for_context(prediction: Prediction, relevance: Relevance) -> Prediction:
    """The same scores, given out anew: the surer the context, the more by what was of use in contexts like it.

    The scores as such stay, for the size of a list is read from them.
    """
    sure = min(max(relevance.confidence, 0.0), 1.0)
    fit = sure * _standard(relevance.learned) + (1 - sure) * _standard(prediction.scores)
    scores = np.empty(len(prediction.scores), np.float64)
    scores[np.argsort(-fit, kind="stable")] = np.sort(np.asarray(prediction.scores, np.float64))[::-1]
    return replace(prediction, scores=scores)


def _standard(values: Scores) -> Scores:
    """In standard deviations from the mean; zeros when all are alike."""
    numbers = np.nan_to_num(np.asarray(values, np.float64), posinf=0.0, neginf=0.0)
    spread = float(numbers.std())
    found: Scores = (numbers - numbers.mean()) / spread if spread > _LEAST_SPREAD else np.zeros_like(numbers)
    return found
