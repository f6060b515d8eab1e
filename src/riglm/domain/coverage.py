"""How many tools a list must hold so that the next one is in it as often as was asked for."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from riglm.domain.prediction import Scores

MOST_REMEMBERED: Final = 2000
"""So many of the latest calls say how much a list must hold."""

_STEP: Final = 0.003
_RANK_SHARE: Final = 0.5
_ENOUGH: Final = 20
"""With fewer calls to go by, a list is as long as it may be."""


class CoverageCalibrator:
    """Sizes lists by the share of calls that they should hold, by adaptive conformal inference.

    A softmax makes probabilities of the scores. Of each call it is remembered how surprising its tool was: minus the
    logarithm of its probability, and half the logarithm of its rank, which keeps the lists of vague predictions from
    growing without end. A list then holds all tools that are no more surprising than `goal` of these calls: few where
    the prediction is sure, more where many tools are likely. What was realised corrects what is aimed at, so that the
    share holds in the long run whatever the scores are worth. `least` and `most` bound the size; while fewer than 20
    calls were observed it is `most`.
    """

    def __init__(self, goal: float, least: int, most: int) -> None:
        self._goal = goal
        self._least = least
        self._most = most
        self._aim = goal
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []

    @property
    def calibrated(self) -> bool:
        """Whether enough calls were observed to go by."""
        return len(self._latest) >= _ENOUGH

    def size(self, scores: "Scores") -> int:
        """How many of the best candidates to list; no more than there are."""
        upper = min(self._most, scores.size)
        if not self.calibrated or not scores.size:
            return upper
        wanted = int((_surprises(scores) <= self._threshold()).sum())
        return max(min(wanted, upper), min(self._least, upper))

    def observe(self, scores: "Scores", target: int) -> None:
        """After these scores, the candidate at `target` was called."""
        surprise = float(_surprises(scores)[target])
        if self.calibrated:
            missed = surprise > self._threshold()
            self._aim = min(max(self._aim + _STEP * (missed - (1 - self._goal)), 0.0), 1.0)
        self._remember(surprise)

    def state(self) -> dict[str, Any]:
        """What was learned, as JSON can hold it."""
        return {"aim": self._aim, "latest": list(self._latest)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave; what does not look like it is left alone."""
        aim, latest = state.get("aim"), state.get("latest")
        if not isinstance(aim, float) or not isinstance(latest, Sequence):
            return
        if not all(isinstance(surprise, float) for surprise in latest):
            return
        self._aim = min(max(aim, 0.0), 1.0)
        self._latest.clear()
        self._sorted.clear()
        for surprise in latest[-MOST_REMEMBERED:]:
            self._remember(surprise)

    def _threshold(self) -> float:
        """The most surprising tools that are still listed."""
        place = ceil(self._aim * (len(self._sorted) + 1))
        return self._sorted[min(max(place, 1), len(self._sorted)) - 1]

    def _remember(self, surprise: float) -> None:
        self._latest.append(surprise)
        insort(self._sorted, surprise)
        if len(self._latest) > MOST_REMEMBERED:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]


def _surprises(scores: "Scores") -> "Scores":
    """How surprising a call of each candidate would be; never less than for one with a higher score."""
    import numpy as np  # noqa: PLC0415 - a start waits for nothing that it does not need

    below = scores - scores.max()
    places = np.empty(scores.size)
    places[np.argsort(-scores, kind="stable")] = np.arange(1, scores.size + 1)
    surprises: Scores = np.log(np.exp(below).sum()) - below + _RANK_SHARE * np.log(places)
    return surprises
