"""Creation of predictors by name, built-in and third-party ones."""

from collections.abc import Mapping
from typing import Any, Final, cast

from riglm.ports.predictor import PluginPoint, PredictorPort

__all__ = ["GROUP", "available", "select_predictor"]

GROUP: Final = "riglm.predictors"
"""The entry-point group in which packages name their predictors."""

_SOCKET: Final = PluginPoint(
    group=GROUP,
    what="predictor",
    key="predictor.kind",
    options="predictor.options",
    methods=("learn", "predict"),
    port="riglm.ports.predictor.PredictorPort",
)


def available() -> tuple[str, ...]:
    """Return the kinds of predictors that are installed, sorted. None of them is imported."""
    return _SOCKET.names()


def select_predictor(kind: str, options: Mapping[str, Any] | None = None) -> PredictorPort:
    """Create the predictor of a kind with these options.

    Raises:
        ConfigurationError: nothing of this kind is installed, it cannot be loaded, it is no predictor, or it does not
            take the options.
    """
    return cast("PredictorPort", _SOCKET.make(kind, options))
