"""The dependency-injection container, which knows which adapter implements which port."""

import importlib.util
from typing import TYPE_CHECKING

from riglm.adapters.configuration.loading import Configuration
from riglm.adapters.telemetry.logs import JsonLogs
from riglm.application.forwarding.catalogs import CatalogCache, KnownCatalogs
from riglm.application.forwarding.services import RequestServices
from riglm.application.recording.call_recording import CallRecordingService
from riglm.application.recording.maintenance import Maintenance
from riglm.application.recording.recorder import Recorder
from riglm.application.sessions.registry import SessionRegistry
from riglm.composition.control import make_control, make_live
from riglm.composition.prediction import (
    make_converging,
    make_embedders,
    make_filtering,
    make_overrides,
    make_owners,
    make_prediction,
    make_showing,
    make_warm_sets,
    make_worker,
)
from riglm.composition.services import (
    evidence,
    make_metrics,
    make_overhead,
    make_sharing,
    make_state,
    make_tracer,
    make_voice,
)
from riglm.composition.storage import (
    create_store,
    database_url,
    is_shared,
    kept_open,
    knowledge_store,
    make_hasher,
    make_maintenance,
    make_recorder,
    sqlite_choices,
)
from riglm.domain.errors import ConfigurationError
from riglm.domain.hashing import KeyedHasher
from riglm.domain.schemas.settings import Settings
from riglm.injection import containers, providers
from riglm.ports.analytics import AnalyticsPort

if TYPE_CHECKING:
    from riglm.adapters.analytics.prediction_store import SqliteChoices
    from riglm.adapters.telemetry.metrics import PrometheusMetrics
    from riglm.adapters.telemetry.tracing import OpenTelemetryTracer
    from riglm.application.control.configuration import LiveConfiguration
    from riglm.application.control.service import ControlService
    from riglm.application.filter_middleware.middleware import FilterMiddleware
    from riglm.application.filtering.active_rules import Overrides
    from riglm.application.filtering.service import FilteringService
    from riglm.application.knowledge.inner_voice import InnerVoice
    from riglm.application.prediction.service import PredictionService
    from riglm.application.prediction.shared_learning import SharedLearning
    from riglm.application.prediction.warm_sets import WarmSets
    from riglm.application.session_sharing.service import SessionSharingService
    from riglm.application.worker import Worker
    from riglm.ports.embedder import Embedders
    from riglm.ports.knowledge import KnowledgePort
    from riglm.ports.session_state import SessionStatePort


class Container(containers.DeclarativeContainer):
    """Everything that one riglm process is made of."""

    settings: providers.Dependency[Settings] = providers.Dependency(instance_of=Settings)
    configuration: providers.Dependency[Configuration | None] = providers.Dependency(default=None)
    logs: providers.Dependency[JsonLogs | None] = providers.Dependency(default=None)
    is_guest: providers.Dependency[bool] = providers.Dependency(default=False)
    hasher: providers.Provider[KeyedHasher] = providers.Singleton(make_hasher, settings)
    url: providers.Provider[str] = providers.Resource(database_url, settings)
    analytics: providers.Provider[AnalyticsPort] = providers.Factory(create_store, settings, url, hasher.provider)
    kept: providers.Provider[AnalyticsPort] = providers.Factory(
        create_store, settings, url, hasher.provider, is_quarantining=True
    )
    knowledge: "providers.Provider[KnowledgePort]" = providers.Factory(knowledge_store, settings, url)
    recorder: providers.Provider[Recorder] = providers.Singleton(make_recorder, settings, kept.provider)
    tracer: "providers.Provider[OpenTelemetryTracer | None]" = providers.Singleton(make_tracer, settings)
    metrics: "providers.Provider[PrometheusMetrics | None]" = providers.Singleton(make_metrics, settings)
    tracking: providers.Provider[CallRecordingService] = providers.Singleton(
        CallRecordingService, recorder, hasher, settings, meter=metrics
    )
    sessions: providers.Provider[SessionRegistry] = providers.Singleton(
        SessionRegistry,
        tracking,
        hasher,
        providers.Callable(evidence, settings),
        shared=providers.Callable(is_shared, settings),
    )
    services: providers.Provider[RequestServices] = providers.Singleton(
        RequestServices,
        tracking=tracking,
        sessions=sessions,
        catalogs=providers.Singleton(CatalogCache),
        known_catalogs=providers.Singleton(KnownCatalogs, hasher, recorder.provided.put),
        owners=providers.Singleton(make_owners, settings),
        grace=settings.provided.timeouts.grace,
        longest_list=settings.provided.timeouts.list,
        overhead=providers.Callable(make_overhead, metrics),
        tracer=tracer,
    )
    choices: "providers.Provider[AnalyticsPort | SqliteChoices]" = providers.Selector(
        settings.provided.storage.kind,
        memory=providers.Resource(kept_open, settings, url, hasher.provider),
        sqlite=providers.Factory(sqlite_choices, settings),
        postgresql=providers.Resource(kept_open, settings, url, hasher.provider),
    )
    worker: "providers.Provider[Worker]" = providers.Singleton(make_worker, "riglm-prediction")
    asking: "providers.Provider[Worker]" = providers.Singleton(make_worker, "riglm-asking")
    overrides: "providers.Provider[Overrides]" = providers.Singleton(make_overrides, asking, choices.provider)
    warm_sets: "providers.Provider[WarmSets]" = providers.Singleton(make_warm_sets, settings, asking, choices.provider)
    embedders: "providers.Provider[Embedders]" = providers.Singleton(make_embedders, settings, url)
    prediction: "providers.Provider[PredictionService]" = providers.Singleton(
        make_prediction,
        settings,
        worker,
        services,
        recorder,
        hasher,
        analytics.provider,
        metrics,
        embedders.provider,
        is_guest=is_guest,
    )
    voice: "providers.Provider[InnerVoice | None]" = providers.Singleton(
        make_voice, settings, worker, embedders.provider, knowledge.provider
    )
    filtering: "providers.Provider[FilteringService]" = providers.Singleton(
        make_filtering, settings, services, prediction, warm_sets, overrides
    )
    showing: "providers.Provider[FilterMiddleware]" = providers.Singleton(
        make_showing, settings, services, filtering, voice
    )
    state: "providers.Provider[SessionStatePort]" = providers.Singleton(make_state, settings)
    sharing: "providers.Provider[SessionSharingService]" = providers.Singleton(
        make_sharing, settings, state, hasher, sessions, tracking, filtering.provider
    )
    converging: "providers.Provider[SharedLearning]" = providers.Singleton(
        make_converging, prediction, sharing, worker, analytics.provider
    )
    maintenance: providers.Provider[Maintenance] = providers.Singleton(
        make_maintenance, settings, recorder, kept.provider, prediction.provider
    )
    live: "providers.Provider[LiveConfiguration]" = providers.Singleton(
        make_live,
        settings,
        configuration,
        logs,
        filtering,
        showing,
        prediction,
        warm_sets,
        tracking,
        sessions,
        maintenance,
        voice,
    )
    control: "providers.Provider[ControlService]" = providers.Factory(
        make_control, settings, services, filtering, prediction, overrides, recorder, live, analytics.provider
    )


def build(
    settings: Settings,
    configuration: Configuration | None = None,
    logs: JsonLogs | None = None,
    *,
    is_guest: bool = False,
) -> Container:
    """A container for these settings; `configuration` says where they come from, `logs` takes what is logged.

    A library shares the process of its host.

    Raises:
        ConfigurationError: they name a store whose driver is not installed.
    """
    if settings.storage.kind == "postgresql" and importlib.util.find_spec("psycopg") is None:
        raise ConfigurationError(
            "storage.kind: PostgreSQL's driver is not installed — fix: pip install 'riglm[postgresql]'"
        )
    container = Container(settings=settings, configuration=configuration, logs=logs, is_guest=is_guest)
    container.url()  # a resource must be initialized before several threads request it
    return container
