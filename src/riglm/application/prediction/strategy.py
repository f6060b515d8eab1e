"""The strategy that predicts, made from the configuration."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from riglm.application.prediction.prediction_settings import PredictionSettings, Strategy
from riglm.application.worker import Worker
from riglm.domain.prediction import Prediction, PredictionInput
from riglm.domain.schemas.section import OWN_KINDS, PredictorSettings
from riglm.domain.schemas.settings import Settings
from riglm.ports.predictor import PredictorPort

SelectPredictor = Callable[[str, Mapping[str, Any]], PredictorPort]
"""Makes the predictor of a kind with its options."""

MAKING_SECONDS: Final = 3.0
"""How long a plug-in may take to be made: a list waits for five seconds until a strategy is made and has learned."""

_FALLBACK: Final = "hybrid"


def prediction_settings(settings: Settings, *, select: SelectPredictor) -> PredictionSettings:
    """Return the settings of prediction from a configuration."""
    return PredictionSettings(
        strategy=make_strategy(settings.predictor, select=select),
        scope=settings.learning.scope,
        most_pairs=settings.learning.max_pairs,
        period=settings.filtering.period,
    )


def make_strategy(chosen: PredictorSettings, *, select: SelectPredictor) -> Strategy:
    """Return the configured strategy; its faults are logged once for all predictors that it makes."""
    reported = set[str]()
    key = json.dumps([chosen.kind, chosen.options], sort_keys=True, default=str)
    return Strategy(name=chosen.kind, key=key, make=lambda: _make_or_replace(chosen, select, reported))


def make_predictor(
    chosen: PredictorSettings, *, select: SelectPredictor, reported: set[str] | None = None
) -> PredictorPort:
    """Return the configured predictor; a plug-in is isolated, with a fallback.

    `reported` are its faults that were logged before.

    Raises:
        ConfigurationError: there is none of this kind, or it does not take its options.
    """
    predictor = select(chosen.kind, chosen.options)
    if type(predictor).__module__.startswith("riglm.adapters."):
        return predictor
    return _isolated(predictor, select, reported)


class _UnavailablePredictor:
    """A predictor that could not be made: it raises the reason whenever it is asked."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        raise self._error

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        raise self._error


def _make_or_replace(chosen: PredictorSettings, select: SelectPredictor, reported: set[str]) -> PredictorPort:
    """Return a predictor; the fallback answers in place of a plug-in that cannot be made, or not in time."""
    if chosen.kind in OWN_KINDS:
        return make_predictor(chosen, select=select)
    worker = Worker("riglm-predictor-making")
    worker.start()
    making = worker.submit(lambda: make_predictor(chosen, select=select, reported=reported))
    worker.submit(worker.stop)
    try:
        return making.result(MAKING_SECONDS)
    except Exception as error:  # noqa: BLE001  # of a plug-in
        return _isolated(_UnavailablePredictor(error), select, reported)


def _isolated(predictor: PredictorPort, select: SelectPredictor, reported: set[str] | None) -> PredictorPort:
    from riglm.application.prediction.isolated_predictor import IsolatedPredictor  # noqa: PLC0415  # it needs numpy

    return IsolatedPredictor(predictor, select(_FALLBACK, {}), fallback=_FALLBACK, reported=reported)
