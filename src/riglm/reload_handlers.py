"""What applies changed settings to the parts of a process while it runs."""

from riglm.adapters.telemetry.logs import JsonLogs
from riglm.application.control.configuration import (
    FilteringReloadHandler,
    PredictionReloadHandler,
    ReloadHandler,
    ValueReloadHandler,
)
from riglm.application.sessions.registry import identification_settings
from riglm.container import Container
from riglm.domain.schemas.settings import Settings
from riglm.ports.predictor import PredictorPort


def create_reload_handlers(container: Container) -> list[ReloadHandler]:
    """Return the handlers for the parts that the container built or will build."""
    maintenance = container.maintenance()
    handlers: list[ReloadHandler] = [
        ValueReloadHandler(lambda new: new.arguments, container.tracking().take_arguments),
        ValueReloadHandler(identification_settings, container.sessions().look_for),
        ValueReloadHandler(lambda new: new.sessions.idle_gap, maintenance.end_idle_after),
        ValueReloadHandler(lambda new: new.retention, lambda retention: maintenance.keep(retention.expiry)),
    ]
    if container.settings().intercepts_lists:
        filtering, middleware = container.filtering(), container.filter_middleware()

        def learned_anew() -> None:
            filtering.rechoose()
            middleware.reconfigured()

        container.prediction().on_reload(learned_anew)
        handlers += [
            FilteringReloadHandler(filtering, middleware.reconfigured),
            PredictionReloadHandler(container.prediction(), container.prediction_settings, _make_predictor),
            ValueReloadHandler(container.prediction_settings, container.warm_sets().follow),
        ]
    voice = container.voice()
    if voice is not None:
        handlers.append(ValueReloadHandler(lambda new: new.knowledge, voice.follow))
    logs: JsonLogs | None = container.logs()
    if logs is not None:
        known = container.configuration().settings.secrets()
        handlers.append(
            ValueReloadHandler(
                lambda new: (new.logging.level, (*known, *new.secrets())), lambda given: logs.follow(*given)
            )
        )
    return handlers


def _make_predictor(settings: Settings) -> PredictorPort:
    return Container(settings=settings).predictor()
