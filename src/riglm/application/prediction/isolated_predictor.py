"""Isolation for third-party predictors: on an exception, an invalid score or a timeout, a fallback answers."""

import logging
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np

from riglm.application.worker import Worker
from riglm.domain.prediction import Prediction, PredictionInput, Scores
from riglm.ports.predictor import PredictorPort

_Result = TypeVar("_Result")
_LEARNING_SECONDS: Final = 4.0  # a list waits for five until sessions are learned
_LONGEST_SECONDS: Final = 1.0
_INVALID: Final = "the answer is not one finite score for each candidate"
_log: Final = logging.getLogger("riglm.prediction")


class IsolatedPredictor(PredictorPort):
    """Runs a predictor on a separate thread, and a fallback in its place while it is late or wrong.

    `timeout_seconds` is for one prediction. `learning_seconds` are for all that is learned together, and one second
    for each call: after them the fallback answers. A predictor that was late is not called again before it has come
    back. `learn` blocks.
    """

    def __init__(
        self,
        guarded: PredictorPort,
        instead: PredictorPort,
        *,
        fallback: str,
        timeout_seconds: float = 0.05,
        learning_seconds: float = _LEARNING_SECONDS,
        reported: set[str] | None = None,
    ) -> None:
        """`instead`, whose name is `fallback`, answers on the caller's thread.

        `reported` are faults that a predictor of the same strategy has logged; they are not logged again.
        """
        self._guarded = guarded
        self._instead = instead
        self._fallback = fallback
        self._timeout_seconds = timeout_seconds
        self._learning_seconds = learning_seconds
        self._worker = Worker("riglm-predictor")
        self._worker.start()
        weakref.finalize(self, self._worker.stop)  # there is one for each scope, and scopes come and go
        self._late: Future[Any] | None = None
        self._reported = set[str]() if reported is None else reported

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        self._instead.learn(prediction_input, tool, weight)
        started, seconds = time.monotonic(), min(self._learning_seconds, _LONGEST_SECONDS)
        self._call("learning", lambda: self._guarded.learn(prediction_input, tool, weight), seconds)
        self._learning_seconds -= time.monotonic() - started

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        def predict() -> Prediction:
            return _checked(self._guarded.predict(prediction_input, explain=explain), len(prediction_input.candidates))

        found = self._call("predicting", predict, self._timeout_seconds)
        return found or replace(self._instead.predict(prediction_input, explain=explain), fallback=self._fallback)

    def _call(self, what: str, job: Callable[[], _Result], seconds: float) -> _Result | None:
        """Return the result of a job on the predictor's thread, None if there is none within `seconds`."""
        if self._learning_seconds <= 0 or (self._late is not None and not self._late.done()):
            return None
        asked = self._worker.submit(job)
        try:
            error = asked.exception(seconds)
        except TimeoutError:
            self._late = asked
            limit = f"{self._timeout_seconds * 1000:.0f} ms" if what == "predicting" else "its time"
            self._notify(f"it did not answer within {limit}, while {what}")
            return None
        if error is not None:
            self._notify(f"it raised {type(error).__name__} while {what}", error)
            return None
        return asked.result()

    def _notify(self, what: str, error: BaseException | None = None) -> None:
        if what not in self._reported:
            self._reported.add(what)
            name = type(self._guarded).__name__
            _log.error("predictor %s failed: %s; a fallback is used (logged once)", name, what, exc_info=error)


def _checked(found: Prediction, count: int) -> Prediction:
    """Return a copy of a prediction.

    Raises:
        ValueError: its scores or parts are not one finite score for each candidate, or its confidence is not finite.
    """
    contributions, log_odds = (
        {str(name): _numbers(part, count) for name, part in (parts or {}).items()}
        for parts in (found.contributions, found.log_odds)
    )
    return Prediction(
        scores=_numbers(found.scores, count),
        contributions=contributions,
        confidence=float(np.clip(_numbers([found.confidence], 1)[0], 0.0, 1.0)),
        log_odds=log_odds or None,
    )


def _numbers(values: Any, count: int) -> Scores:
    numbers = np.array(values)
    if numbers.shape != (count,) or numbers.dtype.kind not in "fiu" or not np.isfinite(numbers).all():
        raise ValueError(_INVALID)
    return numbers.astype(np.float64)
