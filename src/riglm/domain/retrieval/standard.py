"""Scores of different kinds on one scale."""

import math
from typing import Final

import numpy as np

from riglm.domain.prediction import Scores

_SMALL_CATALOG: Final = 500
_LARGE_CATALOG: Final = 8_000
_LEVEL_RANK: Final = 10


def standardised(scores: Scores) -> Scores:
    """Return each row with mean 0 and deviation 1; a row of equal scores carries no information and becomes zeros."""
    if not scores.shape[-1]:
        return scores
    spread = scores.std(axis=-1, keepdims=True)
    return np.where(spread > 1e-9, (scores - scores.mean(axis=-1, keepdims=True)) / np.maximum(spread, 1e-9), 0.0)


def relative(scores: Scores) -> Scores:
    """The best at 1, what is no better than the mean at 0."""
    best = scores.max(initial=0.0)
    return np.clip(scores / best, 0.0, 1.0) if best > 0 else np.zeros(len(scores))


def size_share(tools: int) -> float:
    """Return 0 for a small catalog, 1 for one of thousands of tools, and between them the share on a log scale."""
    share = math.log(max(tools, 1) / _SMALL_CATALOG) / math.log(_LARGE_CATALOG / _SMALL_CATALOG)
    return min(max(share, 0.0), 1.0)


def level(words: Scores, meaning: Scores) -> Scores:
    """Return standardised scores by words, on the level of those by meaning, row by row.

    In a large catalog few tools share a word with a request, so scores by words deviate much further. The tenth best
    tool by words is lowered towards the tenth best by meaning. Distances above it are kept: a tool that stands out
    among those that share words still stands out.
    """
    share = size_share(words.shape[1])
    if not share:
        return words
    last = words.shape[1] - _LEVEL_RANK
    tenth = np.partition(words, last, axis=1)[:, last, None]
    target = np.partition(meaning, last, axis=1)[:, last, None]
    factor = np.clip(target / np.maximum(tenth, 1e-9), 0.0, 1.0) ** share
    return np.where(words <= tenth, words * factor, words + tenth * (factor - 1))
