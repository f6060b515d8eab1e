"""Chooses a predictor by name, ours and strangers' alike."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, cast

from riglm.domain.errors import ConfigurationError
from riglm.ports.predictor import PredictorPort

GROUP: Final = "riglm.predictors"
"""The entry-point group in which packages name their predictors."""

_METHODS: Final = ("learn", "predict")


def available() -> tuple[str, ...]:
    """The kinds of predictors that are installed, sorted; nothing of theirs is imported."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def select_predictor(kind: str, options: Mapping[str, Any] | None = None) -> PredictorPort:
    """Make the predictor of a kind with these options.

    Raises:
        ConfigurationError: nothing of this kind is installed, it cannot be loaded, it is no predictor, or it does not
            take the options.
    """
    point = next((point for point in entry_points(group=GROUP) if point.name == kind), None)
    if point is None:
        raise ConfigurationError(f"predictor.kind: unknown predictor {kind!r} — fix: one of {', '.join(available())}")
    made = _make(point, options or {})
    missing = [method for method in _METHODS if not callable(getattr(made, method, None))]
    if missing:
        raise ConfigurationError(
            f"predictor.kind: {kind!r} ({point.value}) is no predictor: it has no {' and no '.join(missing)} — fix: "
            "give it the methods of riglm.ports.predictor.PredictorPort"
        )
    return cast("PredictorPort", made)


def _make(point: EntryPoint, options: Mapping[str, Any]) -> object:
    try:
        maker = point.load()
    except Exception as error:
        raise ConfigurationError(
            f"predictor.kind: {point.name!r} ({point.value}) cannot be loaded: {error} "
            "— fix: repair or remove its package"
        ) from error
    if not callable(maker):
        raise ConfigurationError(
            f"predictor.kind: {point.name!r} ({point.value}) is no class — fix: name a class in its entry point"
        )
    try:
        return maker(**options)
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"predictor.options: {point.name!r} does not take {dict(options)!r}: {error} — fix: options it knows"
        ) from error
