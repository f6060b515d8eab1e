"""The strategy that predicts, and the settings of prediction."""

import json
from typing import TYPE_CHECKING, Final

from riglm.domain.schemas.section import OWN_KINDS
from riglm.domain.schemas.settings import Settings

if TYPE_CHECKING:
    from riglm.application.prediction.prediction_settings import PredictionSettings, Strategy
    from riglm.domain.prediction import Prediction, PredictionInput
    from riglm.ports.predictor import PredictorPort

SWITCH_SECONDS: Final = 0.0005
"""While another thread learns or shows, the event loop waits no longer for it; by default it is 5 ms."""

_FALLBACK: Final = "hybrid"
_MAKING_SECONDS: Final = 3.0  # a list waits for five until a strategy is made and has learned


def build_predictor(settings: Settings, reported: set[str] | None = None) -> "PredictorPort":
    """The predictor that the configuration asks for; one that was not written here under guard.

    `reported` are its faults that were logged before.

    Raises:
        ConfigurationError: there is none of this kind, or it does not take its options.
    """
    from riglm.adapters.prediction.selection import select_predictor

    chosen = select_predictor(settings.predictor.kind, settings.predictor.options)
    if type(chosen).__module__.startswith("riglm.adapters."):
        return chosen
    from riglm.application.prediction.isolated_predictor import IsolatedPredictor

    return IsolatedPredictor(chosen, select_predictor(_FALLBACK), fallback=_FALLBACK, reported=reported)


def build_strategy(settings: Settings) -> "Strategy":
    """Return the strategy that the configuration asks for."""
    from riglm.application.prediction.prediction_settings import Strategy

    chosen, reported = settings.predictor, set[str]()
    key = json.dumps([chosen.kind, chosen.options], sort_keys=True, default=str)
    return Strategy(name=chosen.kind, key=key, make=lambda: _make_predictor(settings, reported))


class _UnavailablePredictor:
    """A predictor that could not be made: it raises the reason whenever it is asked."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def learn(self, prediction_input: "PredictionInput", tool: str, weight: float = 1.0) -> None:
        raise self._error

    def predict(self, prediction_input: "PredictionInput", *, explain: bool = False) -> "Prediction":
        raise self._error


def _make_predictor(settings: Settings, reported: set[str]) -> "PredictorPort":
    """Return a predictor; the fallback answers in place of a plug-in that cannot be made, or not in time."""
    if settings.predictor.kind in OWN_KINDS:
        return build_predictor(settings)
    from riglm.adapters.prediction.selection import select_predictor
    from riglm.application.prediction.isolated_predictor import IsolatedPredictor
    from riglm.application.worker import Worker

    worker = Worker("riglm-predictor-making")
    worker.start()
    making = worker.submit(lambda: build_predictor(settings, reported))
    worker.submit(worker.stop)
    try:
        return making.result(_MAKING_SECONDS)
    except Exception as error:  # noqa: BLE001  # of a plug-in
        missing = _UnavailablePredictor(error)
        return IsolatedPredictor(missing, select_predictor(_FALLBACK), fallback=_FALLBACK, reported=reported)


def plan_of(settings: Settings) -> "PredictionSettings":
    """Return the settings of prediction from a configuration."""
    from riglm.application.prediction.prediction_settings import PredictionSettings

    return PredictionSettings(
        strategy=build_strategy(settings),
        scope=settings.learning.scope,
        most_pairs=settings.learning.max_pairs,
        period=settings.filtering.period,
    )
