"""What each strategy would have shown in the sessions that riglm recorded."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import numpy as np

from riglm.domain.coverage import CoverageCalibrator
from riglm.domain.learning import SIGNALS
from riglm.domain.prediction import PredictionInput
from riglm.domain.session_state import MAX_CALLS
from riglm.ports.analytics import TrainingSession
from riglm.ports.predictor import PredictorPort

CUTS: Final = (1, 5, 10, 15)


@dataclass(slots=True, kw_only=True, eq=False)
class RankTally:
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

        `fixed_list` is the length of a fixed-size list that contains as many of the calls; `reduction` is the share of
        tools that are not listed. Shares are in percent.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCall:
    """One recorded call, and the list that was made before it.

    `place` is the rank of its tool, from 0; `size` the length of the list, out of `candidates`. `fresh` is True if the
    session had not used the tool before. `at` is in seconds since the epoch.
    """

    session: UUID
    at: float
    tool: str
    server: str
    fresh: bool
    place: int
    size: int
    candidates: int
    taken_ms: float

    @property
    def is_hit(self) -> bool:
        """Whether the list held the tool."""
        return self.place < self.size


def walk_history(
    history: Sequence[TrainingSession],
    predictor: PredictorPort,
    *,
    goal: float,
    least: int,
    most: int,
    since: float = 0.0,
    on_session: Callable[[int], None] = lambda _: None,
) -> list[ReplayedCall]:
    """Walk the sessions once, oldest first; every call is predicted before it is learned.

    Before each call a list of `least` to `most` tools is selected for the coverage `goal`. Sessions that started before
    `since`, or whose catalog is unknown, are only learned from. Contexts are not
    recorded as text, so they play no part. Failed calls are not learned.
    """
    calibrator = CoverageCalibrator(goal, least, most)
    servers = {call.tool: call.upstream for session in history for call in session.calls}
    steps: list[ReplayedCall] = []
    for session in history:
        is_judged = session.started_at >= since
        candidates = tuple(dict.fromkeys((*session.tools_available, *(call.tool for call in session.calls))))
        columns = {tool: column for column, tool in enumerate(candidates)}
        before: tuple[str, ...] = ()
        for call in session.calls:
            prediction_input = PredictionInput(
                candidates=candidates,
                calls=before,
                servers=servers,
                principal=session.principal,
                client=session.client,
                project=session.project,
                time=call.timestamp,
            )
            if session.tools_available:
                started = time.perf_counter()
                prediction = predictor.predict(prediction_input)
                taken_ms = (time.perf_counter() - started) * 1e3
                step = ReplayedCall(
                    session=session.id,
                    at=call.timestamp,
                    tool=call.tool,
                    server=call.upstream,
                    fresh=call.tool not in before,
                    place=rank(prediction.scores, columns[call.tool]),
                    size=calibrator.size(prediction),
                    candidates=len(candidates),
                    taken_ms=taken_ms,
                )
                if is_judged:
                    steps.append(step)
                if call.success:
                    calibrator.observe(prediction, columns[call.tool])
            if call.success:
                predictor.learn(prediction_input, call.tool, SIGNALS[call.found])
                before = (*before, call.tool)[-MAX_CALLS:]
        on_session(1)
    return steps


def figures(steps: Sequence[ReplayedCall]) -> dict[str, Any]:
    """The figures of a walk; shares are in percent, and None where there is nothing to share.

    `calls` and `new_calls` (of tools that the session had not used) are counted, `hit_rate` and `new_hit_rate` are the
    shares of them whose tool was in the list, `reduction` how many of all tools it did not show; `mean_list` is its
    mean length.
    """
    fresh = [step for step in steps if step.fresh]
    shown, available = sum(step.size for step in steps), sum(step.candidates for step in steps)
    taken = [step.taken_ms for step in steps]
    return {
        "sessions": len({step.session for step in steps}),
        "calls": len(steps),
        "new_calls": len(fresh),
        "hit_rate": _percent(sum(step.is_hit for step in steps), len(steps)),
        "new_hit_rate": _percent(sum(step.is_hit for step in fresh), len(fresh)),
        "mean_list": round(shown / len(steps), 2) if steps else None,
        "reduction": _percent(available - shown, available),
        "p50_ms": percentile(taken, 0.5),
        "p99_ms": percentile(taken, 0.99),
    }


def _percent(part: float, whole: float) -> float | None:
    return round(100 * part / whole, 2) if whole else None
