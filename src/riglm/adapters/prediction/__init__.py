"""Creation of predictors by name, built-in and third-party ones."""

from collections.abc import Mapping
from typing import Any, cast

from riglm.ports.predictor import PREDICTORS, PredictorPort

__all__ = ["select_predictor"]


def select_predictor(kind: str, options: Mapping[str, Any] | None = None) -> PredictorPort:
    """Create the predictor of a kind with these options.

    Raises:
        ConfigurationError: nothing of this kind is installed, it cannot be loaded, it is no predictor, or it does not
            take the options.
    """
    return cast("PredictorPort", PREDICTORS.make(kind, options))
