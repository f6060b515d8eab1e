"""Probability that a tool is one that a request asks for."""

from typing import Final

import numpy as np

from riglm.domain.prediction import Scores

# fitted by `python -m benchmarks.retrieval probability`
RANKING_WEIGHT: Final = 0.3
LIKENESS_WEIGHT: Final = 5.0
COVERAGE_WEIGHT: Final = 5.0
INTERCEPT: Final = 1.5

_MAX_LOG_ODDS: Final = 30.0


def log_odds(evidence: Scores) -> Scores:
    """Return for each tool how far its evidence stands out: the log-odds of a softmax over all tools."""
    if not len(evidence):
        return evidence
    first = int(np.argmax(evidence))
    weights = np.exp(evidence - evidence[first])
    others = weights.sum() - weights
    others[first] = np.delete(weights, first).sum()  # exact where the difference would be lost in rounding
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(np.log(weights) - np.log(others), -_MAX_LOG_ODDS, _MAX_LOG_ODDS))


def probabilities(ranking: Scores, likeness: Scores, coverage: Scores) -> Scores:
    """Return for each tool the probability that the request asks for it.

    `ranking` is the score that tools are ranked by, in deviations; `likeness` the cosine of each tool, and `coverage`
    its share of the request's words. A request may ask for several tools, so the sum may exceed 1.
    """
    evidence = RANKING_WEIGHT * ranking + LIKENESS_WEIGHT * likeness + COVERAGE_WEIGHT * coverage
    return np.asarray(1 / (1 + np.exp(-(INTERCEPT + log_odds(evidence)))))
