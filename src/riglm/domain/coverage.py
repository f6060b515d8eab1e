"""How many tools a list must hold so that the next one is in it as often as was asked for."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from riglm.domain.prediction import Prediction, Scores

_ENOUGH: Final = 20
"""With fewer calls to go by, a list is as long as it may be."""
_TRUST: Final = 100.0
"""Number of observed calls that the expectation of predictions counts as, halved after that number of calls."""
_GAIN: Final = 0.5
"""How much of what was missed too often, or too seldom, is made up for."""
_HALF_LIFE: Final = 1000.0
"""Number of calls after which a call counts half."""
_RANK_SHARE: Final = 0.5
_STEP: Final = 0.02
_STEPS: Final = 700


class CoverageCalibrator:
    """Sizes lists by the share of calls that they should hold: conformal prediction sets, calibrated online.

    A list contains every tool above a probability threshold; no other rule contains as many calls in lists as short:
    few tools where the prediction is certain, more where many are likely. The threshold is read from the record of the
    surprisal of calls (minus the logarithm of the tool's probability), so that the coverage holds even if probabilities
    are biased. While the record is short, the expectation of the predictions counts in addition. Half of the difference
    between the share that was asked for and the one that was realised is added to the aim.

    Without probabilities, a softmax makes them of the scores, and half the logarithm of the rank is added, which keeps
    the lists of vague scores from growing without end. `least` and `most` bound the size; while fewer than 20 calls
    were observed it is `most`.
    """

    def __init__(self, goal: float, least: int, most: int) -> None:
        self._goal = goal
        self._least = least
        self._most = most
        self._calls = 0
        self._observed = np.zeros(_STEPS)
        self._expected = np.zeros(_STEPS)
        self._excess = 0.0
        self._judged = 0.0

    def aim(self, goal: float, least: int, most: int) -> None:
        """Go on with another goal and other bounds; what was observed counts on."""
        if goal != self._goal:
            self._goal = goal
            self._excess = self._judged = 0.0
        self._least = least
        self._most = most

    @property
    def calibrated(self) -> bool:
        """Whether enough calls were observed to go by."""
        return self._calls >= _ENOUGH

    def size(self, prediction: Prediction) -> int:
        """How many of the best candidates to list; no more than there are."""
        upper = min(self._most, prediction.scores.size)
        if not self.calibrated or not upper:
            return upper
        wanted = int((_steps(_surprises(prediction)) <= self._threshold()).sum())
        return max(min(wanted, upper), min(self._least, upper))

    def observe(self, prediction: Prediction, target: int) -> None:
        """After this prediction, the candidate at `target` was called."""
        surprises = _surprises(prediction)
        steps = _steps(surprises)
        fading = 0.5 ** (1 / _HALF_LIFE)
        if self.calibrated:
            missed = bool(steps[target] > self._threshold())
            self._excess = self._excess * fading + missed - (1 - self._goal)
            self._judged = self._judged * fading + 1
        self._calls += 1
        self._observed *= fading
        self._observed[steps[target]] += 1
        if prediction.log_probabilities is not None:
            self._expected *= fading
            self._expected += np.bincount(steps, np.exp(prediction.log_probabilities), _STEPS)

    def _threshold(self) -> int:
        """The step of the most surprising tools that are still listed."""
        record = self._observed
        expected = float(self._expected.sum())
        if expected > 0:
            record = record + self._expected / expected * _TRUST**2 / (_TRUST + self._calls)
        aim = self._goal + _GAIN * self._excess / (self._judged + _ENOUGH)
        held = record.cumsum()
        return int(np.searchsorted(held, min(max(aim, 0.0), 1.0) * held[-1]))


def _surprises(prediction: Prediction) -> Scores:
    """How surprising a call of each candidate would be; never less than for one with a higher score."""
    order = np.argsort(-prediction.scores, kind="stable")
    found = np.empty(order.size)
    if prediction.log_probabilities is not None:
        likeliest_after = np.maximum.accumulate(prediction.log_probabilities[order][::-1])[::-1]
        found[order] = -likeliest_after
        return found
    below = prediction.scores[order] - prediction.scores.max()
    found[order] = np.log(np.exp(below).sum()) - below + _RANK_SHARE * np.log(np.arange(1, order.size + 1))
    return found


def _steps(surprises: Scores) -> NDArray[np.intp]:
    """Surprises in steps of 0.02; what is beyond the last one is as surprising as that."""
    return np.clip(surprises / _STEP, 0, _STEPS - 1).astype(np.intp)
