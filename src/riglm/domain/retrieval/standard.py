"""Scores of different kinds on one scale."""

import numpy as np

from riglm.domain.prediction import Scores


def standardised(scores: Scores) -> Scores:
    """Each row with mean 0 and deviation 1; a row of equal scores tells nothing and becomes zeros."""
    if not scores.shape[-1]:
        return scores
    spread = scores.std(axis=-1, keepdims=True)
    return np.where(spread > 1e-9, (scores - scores.mean(axis=-1, keepdims=True)) / np.maximum(spread, 1e-9), 0.0)


def relative(scores: Scores) -> Scores:
    """The best at 1, what is no better than the mean at 0."""
    best = scores.max(initial=0.0)
    return np.clip(scores / best, 0.0, 1.0) if best > 0 else np.zeros(len(scores))
