"""The part of the configuration that prediction depends on and that may change, and the strategy made from it."""

import json
import logging
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar

from riglm.application.worker import Worker
from riglm.domain.prediction import Prediction, PredictionInput, Scores
from riglm.domain.schemas.section import OWN_KINDS, PredictorSettings
from riglm.domain.schemas.settings import Settings
from riglm.ports.predictor import PREDICTORS, PredictorPort

LearningScope = Literal["principal", "tenant", "instance"]
"""Who learns from whom: each principal for itself, or all who use this riglm together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The strategy that predicts: its name, its key, and what makes one that has learned nothing yet, and may block.

    Strategies of equal keys are of the same name and options.
    """

    name: str
    key: str
    make: Callable[[], PredictorPort] = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionSettings:
    """How to predict, and for whom together.

    At most `most_pairs` learned pairs are kept. Warm sets last for `period` seconds.
    """

    strategy: Strategy
    scope: LearningScope
    most_pairs: int
    period: float

    @property
    def by_principal(self) -> bool:
        """Whether each principal learns for itself."""
        return self.scope == "principal"

    @property
    def scope_name(self) -> str:
        """What warm sets of this scope are marked with."""
        return "principal: " if self.by_principal else "all: "


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
        confidence=min(max(float(_numbers([found.confidence], 1)[0]), 0.0), 1.0),
        log_odds=log_odds or None,
    )


def _numbers(values: Any, count: int) -> Scores:
    import numpy as np  # noqa: PLC0415  # a start without plug-ins need not load it

    numbers = np.array(values)
    if numbers.shape != (count,) or numbers.dtype.kind not in "fiu" or not np.isfinite(numbers).all():
        raise ValueError(_INVALID)
    return numbers.astype(np.float64)


_FALLBACK: Final = "hybrid"


def prediction_settings(settings: Settings) -> PredictionSettings:
    """Return the settings of prediction from a configuration."""
    return PredictionSettings(
        strategy=make_strategy(settings.predictor),
        scope=settings.learning.scope,
        most_pairs=settings.learning.max_pairs,
        period=settings.filtering.period,
    )


def make_strategy(chosen: PredictorSettings) -> Strategy:
    """Return the configured strategy; its faults are logged once for all predictors that it makes."""
    reported = set[str]()
    key = json.dumps([chosen.kind, chosen.options], sort_keys=True, default=str)
    return Strategy(name=chosen.kind, key=key, make=lambda: _make_or_replace(chosen, reported))


def make_predictor(chosen: PredictorSettings, *, reported: set[str] | None = None) -> PredictorPort:
    """Return the configured predictor; a plug-in is isolated, with a fallback.

    `reported` are its faults that were logged before.

    Raises:
        ConfigurationError: there is none of this kind, or it does not take its options.
    """
    predictor: PredictorPort = PREDICTORS.make(chosen.kind, chosen.options)
    if type(predictor).__module__.startswith("riglm.adapters."):
        return predictor
    return _isolated(predictor, reported)


class _UnavailablePredictor:
    """A predictor that could not be made: it raises the reason whenever it is asked."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        raise self._error

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        raise self._error


def _make_or_replace(chosen: PredictorSettings, reported: set[str]) -> PredictorPort:
    """Return a predictor; the fallback answers in place of a plug-in that cannot be made."""
    try:
        return make_predictor(chosen, reported=reported)
    except Exception as error:
        if chosen.kind in OWN_KINDS:
            raise
        return _isolated(_UnavailablePredictor(error), reported)


def _isolated(predictor: PredictorPort, reported: set[str] | None) -> PredictorPort:
    return IsolatedPredictor(predictor, PREDICTORS.make(_FALLBACK), fallback=_FALLBACK, reported=reported)
