"""The part of the configuration that prediction depends on and that may change, and the strategy made from it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from riglm.application.worker import Worker
from riglm.domain.prediction import Prediction, PredictionInput
from riglm.domain.schemas.section import OWN_KINDS, PredictorSettings
from riglm.domain.schemas.settings import Settings
from riglm.ports.predictor import PredictorPort

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
