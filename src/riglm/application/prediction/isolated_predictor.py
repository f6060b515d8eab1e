"""Isolation for third-party predictors: on an exception, an invalid score or a timeout, a fallback answers."""

import logging
import math
import threading
import weakref
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np

from riglm.application.worker import Urgency, Worker
from riglm.domain.prediction import Prediction, PredictionInput
from riglm.ports.predictor import PredictorPort

_log: Final = logging.getLogger("riglm.prediction")
_MAX_UNLEARNED: Final = 20_000  # what is replayed at a start comes all at once


class IsolatedPredictor(PredictorPort):
    """Runs a predictor on a separate thread, and a fallback in its place while it is late or wrong.

    `timeout_seconds` is in seconds. A predictor that was late is not asked again before it has come back. It is asked
    before it learns what is still waiting to be learned.
    """

    def __init__(
        self,
        guarded: PredictorPort,
        instead: PredictorPort,
        *,
        fallback: str,
        timeout_seconds: float = 0.05,
        reported: set[str] | None = None,
    ) -> None:
        """`instead`, whose name is `fallback`, answers on the caller's thread.

        `reported` are faults that a predictor of the same strategy has logged; they are not logged again.
        """
        self._guarded = guarded
        self._instead = instead
        self._fallback = fallback
        self._timeout_seconds = timeout_seconds
        self._worker = Worker("riglm-predictor")
        self._worker.start()
        weakref.finalize(self, self._worker.stop)  # there is one for each scope, and scopes come and go
        self._room = threading.BoundedSemaphore(_MAX_UNLEARNED)
        self._late: Future[Prediction] | None = None
        self._reported = set[str]() if reported is None else reported

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
            return self._answer_instead(prediction_input, explain=explain)
        asked = self._worker.submit(lambda: self._guarded.predict(prediction_input, explain=explain), Urgency.AWAITED)
        try:
            error = asked.exception(self._timeout_seconds)
        except Late:
            self._late = asked
            self._notify(f"it did not answer within {self._timeout_seconds * 1000:.0f} ms")
            return self._answer_instead(prediction_input, explain=explain)
        except CancelledError:
            return self._answer_instead(prediction_input, explain=explain)
        if error is not None:
            self._notify("it raised", error)
        elif (found := _checked(asked.result(), len(prediction_input.candidates))) is not None:
            return found
        else:
            self._notify("its answer is not one finite score for each candidate")
        return self._answer_instead(prediction_input, explain=explain)

    def wait_until_learned(self, seconds: float) -> None:
        """Wait at most `seconds` until all that it was given to learn is learned."""
        with suppress(Late, CancelledError):
            self._worker.submit(lambda: None).result(seconds)

    def close(self) -> None:
        """Stop asking; a call that never returns dies with the process."""
        self._worker.close(timeout=0.1)

    def _answer_instead(self, prediction_input: PredictionInput, *, explain: bool) -> Prediction:
        return replace(self._instead.predict(prediction_input, explain=explain), fallback=self._fallback)

    def _learned(self, future: Future[None]) -> None:
        self._room.release()
        if not future.cancelled() and (error := future.exception()) is not None:
            self._notify("it raised while learning", error)

    def _notify(self, what: str, error: BaseException | None = None) -> None:
        if what not in self._reported:
            self._reported.add(what)
            name = type(self._guarded).__name__
            _log.error("predictor %s failed: %s; a fallback is used (logged once)", name, what, exc_info=error)


def _checked(found: object, count: int) -> Prediction | None:
    """Return a prediction with arrays of finite numbers and a confidence between 0 and 1; None for what is no such."""
    if not isinstance(found, Prediction):
        return None
    try:
        parts = (*found.contributions.values(), *(found.log_odds or {}).values())
        if not all(_is_finite(each, count) for each in (found.scores, *parts)) or not math.isfinite(found.confidence):
            return None
        return Prediction(
            scores=np.array(found.scores, np.float64),
            contributions={str(name): np.array(part, np.float64) for name, part in found.contributions.items()},
            confidence=min(max(float(found.confidence), 0.0), 1.0),
            log_odds={str(name): np.array(part, np.float64) for name, part in found.log_odds.items()}
            if found.log_odds
            else None,
        )
    except Exception:  # noqa: BLE001  # a third-party predictor may raise anything
        return None


def _is_finite(numbers: object, count: int) -> bool:
    scores = np.asarray(numbers)
    return scores.shape == (count,) and scores.dtype.kind in "fiu" and bool(np.isfinite(scores).all())
