"""What is counted when next tools are predicted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

CUTS: Final = (1, 5, 10, 15)


@dataclass(slots=True, kw_only=True, eq=False)
class Tally:
    """Predicted calls: the rank of each called tool from 0, whether its session was new to it, and the time taken.

    `sizes` are the lengths of calibrated lists for the calls whose ranks are in `listed_ranks`.
    """

    ranks: list[int] = field(default_factory=list)
    fresh: list[bool] = field(default_factory=list)
    taken_ms: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    listed_ranks: list[int] = field(default_factory=list)

    def figures(self, cuts: Sequence[int] = CUTS) -> dict[str, Any]:
        """`h@k` of all calls and `new@k` of fresh ones, in percent, their numbers, and milliseconds per prediction."""
        fresh_ranks = [rank for rank, fresh in zip(self.ranks, self.fresh, strict=True) if fresh]
        return {
            **hits("h", self.ranks, cuts),
            **hits("new", fresh_ranks, cuts),
            "calls": len(self.ranks),
            "new_calls": len(fresh_ranks),
            "p50_ms": percentile(self.taken_ms, 0.5),
            "p99_ms": percentile(self.taken_ms, 0.99),
        }

    def coverage(self, goal: float, tools: int) -> dict[str, Any]:
        """How calibrated lists did: the share of calls in them and their mean length.

        `fixed_list` is the length of a list that is always as long and holds as many of the calls; `reduction` says how
        many of all tools are not shown. Shares are in percent.
        """
        if not self.sizes:
            return {
                "goal": round(100 * goal, 2),
                "coverage": None,
                "mean_list": None,
                "fixed_list": None,
                "reduction": None,
            }
        sizes, ranks = np.array(self.sizes), np.array(self.listed_ranks)
        realised, mean = float((ranks < sizes).mean()), float(sizes.mean())
        return {
            "goal": round(100 * goal, 2),
            "coverage": round(100 * realised, 2),
            "mean_list": round(mean, 2),
            "fixed_list": round(fixed_size(self.listed_ranks, realised), 2),
            "reduction": round(100 * (1 - mean / max(tools, 1)), 2),
        }


def hits(name: str, ranks: Sequence[int], cuts: Sequence[int]) -> dict[str, float | None]:
    """The share of ranks among the first k, in percent, for each k; None without ranks."""
    found = np.array(ranks)
    return {f"{name}@{cut}": round(100 * float((found < cut).mean()), 2) if ranks else None for cut in cuts}


def fixed_size(ranks: Sequence[int], share: float) -> float:
    """The list length that holds this share of the calls, between two whole lengths by straight line."""
    held = np.bincount(np.array(ranks)).cumsum() / len(ranks)
    size = int(np.searchsorted(held, share - 1e-12))
    before = float(held[size - 1]) if size else 0.0
    return size + (share - before) / (float(held[size]) - before)


def percentile(values: Sequence[float], share: float) -> float | None:
    """A percentile, to a thousandth; None of nothing."""
    return round(float(np.quantile(values, share)), 3) if values else None


def rank(scores: "np.typing.NDArray[np.float64]", target: int) -> int:
    """How many candidates come before one; of equals, the first in the catalogue."""
    return int((scores > scores[target]).sum() + (scores[:target] == scores[target]).sum())
