"""Ranking by score."""

import heapq
from collections.abc import Sequence

from riglm.domain.prediction import Scores


def ranked(names: Sequence[str], scores: Scores | Sequence[float], most: int) -> list[str]:
    """The best `most` names, best first; among equals the order of the names holds. What is no number comes last."""
    given: list[float] = scores.tolist() if hasattr(scores, "tolist") else list(scores)
    keys = [-score if score == score else float("inf") for score in given]  # noqa: PLR0124  # NaN differs from itself
    return [names[index] for index in heapq.nsmallest(most, range(len(names)), key=keys.__getitem__)]
