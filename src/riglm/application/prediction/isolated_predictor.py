"""Isolation for third-party predictors: on an exception, an invalid score or a timeout, a fallback answers."""

import logging
import threading
import weakref
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as Late
from typing import Final

import numpy as np

from riglm.application.worker import Urgency, Worker
from riglm.domain.prediction import Prediction, PredictionInput
from riglm.ports.predictor import PredictorPort

_log: Final = logging.getLogger("riglm.prediction")
_ROUNDED: Final = 1e-6  # the logarithm of a probability is never more than 0 but for rounding
_MAX_UNLEARNED: Final = 20_000  # what is replayed at a start comes all at once


class IsolatedPredictor(PredictorPort):
    """Runs a predictor on a separate thread, and a fallback in its place while it is late or wrong.

    `timeout_seconds` is in seconds. A predictor that was late is not asked again before it has come back. It is asked
    before it learns what is still waiting to be learned.
    """

    def __init__(self, guarded: PredictorPort, instead: PredictorPort, *, timeout_seconds: float = 0.05) -> None:
        """`instead` answers on the caller's thread."""
        self._guarded = guarded
        self._instead = instead
        self._timeout_seconds = timeout_seconds
        self._worker = Worker("riglm-predictor")
        self._worker.start()
        weakref.finalize(self, self._worker.stop)  # there is one for each scope, and scopes come and go
        self._room = threading.BoundedSemaphore(_MAX_UNLEARNED)
        self._late: Future[Prediction] | None = None
        self._told: set[str] = set()

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        self._instead.learn(prediction_input, tool, weight)
        if not self._room.acquire(blocking=False):
            self._notify("it cannot keep up with what it is to learn")
            return
        self._worker.submit(lambda: self._guarded.learn(prediction_input, tool, weight)).add_done_callback(
            self._learned
        )

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        if self._late is not None and not self._late.done():
            return self._instead.predict(prediction_input, explain=explain)
        asked = self._worker.submit(lambda: self._guarded.predict(prediction_input, explain=explain), Urgency.AWAITED)
        try:
            error = asked.exception(self._timeout_seconds)
        except Late:
            self._late = asked
            self._notify(f"it did not answer within {self._timeout_seconds * 1000:.0f} ms")
            return self._instead.predict(prediction_input, explain=explain)
        except CancelledError:
            return self._instead.predict(prediction_input, explain=explain)
        if error is not None:
            self._notify("it raised", error)
        elif _is_sound(asked.result(), len(prediction_input.candidates)):
            return asked.result()
        else:
            self._notify("its answer is not one finite score for each candidate, or its probabilities are none")
        return self._instead.predict(prediction_input, explain=explain)

    def close(self) -> None:
        """Stop asking; a call that never returns dies with the process."""
        self._worker.close(timeout=0.1)

    def _learned(self, future: Future[None]) -> None:
        self._room.release()
        if not future.cancelled() and (error := future.exception()) is not None:
            self._notify("it raised while learning", error)

    def _notify(self, what: str, error: BaseException | None = None) -> None:
        if what not in self._told:
            self._told.add(what)
            name = type(self._guarded).__name__
            _log.error("predictor %s failed: %s; a fallback is used (logged once)", name, what, exc_info=error)


def _is_sound(found: object, count: int) -> bool:
    if not isinstance(found, Prediction):
        return False
    try:
        likely = np.zeros(count) if found.log_probabilities is None else found.log_probabilities
        sound = all(_is_finite(each, count) for each in (found.scores, *found.contributions.values(), likely))
        return sound and bool((likely <= _ROUNDED).all())
    except Exception:  # noqa: BLE001  # a third-party predictor may raise anything
        return False


def _is_finite(numbers: object, count: int) -> bool:
    scores = np.asarray(numbers)
    return scores.shape == (count,) and scores.dtype.kind in "fiu" and bool(np.isfinite(scores).all())
