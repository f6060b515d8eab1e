"""What applies changed settings to the parts of a process while it runs."""

from riglm.adapters.telemetry.logs import JsonLogs
from riglm.application.control.configuration import ReloadHandler, reload_filtering, reload_prediction, reload_value
from riglm.application.sessions.registry import identification_settings
from riglm.container import Container


def create_reload_handlers(container: Container) -> list[ReloadHandler]:
    """Return the handlers for the parts that the container built or will build."""
    maintenance = container.maintenance()
    handlers: list[ReloadHandler] = [
        reload_value(lambda new: new.arguments, container.tracking().take_arguments),
        reload_value(identification_settings, container.sessions().look_for),
        reload_value(lambda new: new.sessions.idle_gap, maintenance.end_idle_after),
        reload_value(lambda new: new.retention, lambda retention: maintenance.keep(retention.expiry)),
    ]
    if container.settings().intercepts_lists:
        from riglm.application.prediction.prediction_settings import make_predictor, prediction_settings  # noqa: PLC0415

        filtering, changes = container.filtering(), container.list_changes()

        def learned_anew() -> None:
            filtering.rechoose()
            changes.rules_changed()

        container.prediction().on_reload(learned_anew)
        handlers += [
            reload_filtering(filtering, changes.rules_changed),
            reload_prediction(container.prediction(), prediction_settings, lambda new: make_predictor(new.predictor)),
            reload_value(prediction_settings, container.warm_sets().follow),
        ]
    voice = container.voice()
    if voice is not None:
        handlers.append(reload_value(lambda new: new.knowledge, voice.follow))
    logs: JsonLogs | None = container.logs()
    if logs is not None:
        known = container.configuration().settings.secrets()
        handlers.append(
            reload_value(lambda new: (new.logging.level, (*known, *new.secrets())), lambda given: logs.follow(*given))
        )
    return handlers
