"""The predictor, and the settings of prediction."""

from typing import TYPE_CHECKING, Final

from riglm.domain.schemas.settings import Settings

if TYPE_CHECKING:
    from riglm.application.prediction.prediction_settings import PredictionSettings
    from riglm.ports.predictor import PredictorPort

DEFAULT_COVERAGE: Final = 0.95
"""The share of calls that the calibrator aims at while lists are sized by price."""

SWITCH_SECONDS: Final = 0.0005
"""While another thread learns or shows, the event loop waits no longer for it; by default it is 5 ms."""


def build_predictor(settings: Settings) -> "PredictorPort":
    """The predictor that the configuration asks for; one that was not written here under guard.

    Raises:
        ConfigurationError: there is none of this kind, or it does not take its options.
    """
    from riglm.adapters.prediction.selection import select_predictor

    chosen = select_predictor(settings.predictor.kind, settings.predictor.options)
    if type(chosen).__module__.startswith("riglm.adapters."):
        return chosen
    from riglm.application.prediction.isolated_predictor import IsolatedPredictor

    return IsolatedPredictor(chosen, select_predictor("hybrid"))


def plan_of(settings: Settings) -> "PredictionSettings":
    """Return the settings of prediction from a configuration."""
    from riglm.application.prediction.prediction_settings import PredictionSettings

    rules = settings.filtering
    return PredictionSettings(
        predictor=settings.predictor.kind,
        make_predictor=lambda: build_predictor(settings),
        scope=settings.learning.scope,
        most_pairs=settings.learning.max_pairs,
        coverage=rules.coverage or DEFAULT_COVERAGE,
        least=rules.min_tools,
        most=rules.max_tools,
        period=rules.period,
    )
