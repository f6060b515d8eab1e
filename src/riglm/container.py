"""What riglm is made of: one provider for each part, in the order of the layers.

`Container(settings=...)` serves the proxy, commands and `ToolSelector`. It builds a part when it is first needed, and
opens nothing but what `shutdown_resources` closes; `riglm.lifespan` opens the parts in order, and closes them.
"""

import os
import time
from typing import TYPE_CHECKING, Any

from riglm.adapters.configuration import locations
from riglm.adapters.configuration.loading import Configuration
from riglm.domain.errors import missing_extra
from riglm.domain.schemas.settings import Settings
from riglm.lazy_providers import lazy, when

# isort: split
from dependency_injector.containers import DeclarativeContainer
from dependency_injector.providers import Callable as Call
from dependency_injector.providers import Dependency, Factory, Object, Provider, Resource, Selector, Self, Singleton

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from riglm.adapters.analytics.clickhouse import ClickHouse
    from riglm.adapters.analytics.prediction_store import SqliteChoices
    from riglm.adapters.mcp.oauth.accounts import AccountFile
    from riglm.adapters.telemetry.logs import JsonLogs
    from riglm.adapters.telemetry.metrics import PrometheusMetrics
    from riglm.adapters.telemetry.tracing import OpenTelemetryTracer
    from riglm.application.control.configuration import LiveConfiguration
    from riglm.application.filtering.active_rules import Overrides
    from riglm.application.filtering.filtering_service import FilteringService
    from riglm.application.filtering.meta_tools import MetaTools
    from riglm.application.knowledge.inner_voice import InnerVoice
    from riglm.application.prediction.prediction_service import PredictionService
    from riglm.application.prediction.prediction_settings import PredictionSettings
    from riglm.application.prediction.warm_sets import WarmSets
    from riglm.application.proxy.catalogs import ListedTools, StoredCatalogs
    from riglm.application.proxy.list_changes import ListChanges
    from riglm.application.proxy.parts import ProxyParts
    from riglm.application.session_sharing.session_sharing_service import SessionSharingService
    from riglm.application.sessions.registry import SessionRegistry
    from riglm.application.tracking.maintenance import Maintenance
    from riglm.application.tracking.recorder import Recorder
    from riglm.application.tracking.tracking_service import TrackingService
    from riglm.application.trust import PinnedTools
    from riglm.domain.access import AccessRules
    from riglm.domain.audit import AuditLog
    from riglm.domain.hashing import KeyedHasher
    from riglm.domain.tool_pin import ToolPin
    from riglm.ports.analytics import AnalyticsPort
    from riglm.ports.embedder import Embedders
    from riglm.ports.knowledge import KnowledgePort
    from riglm.ports.predictor import PredictorPort
    from riglm.ports.session_state import SessionStatePort
    from riglm.ports.spool import SpoolPort


# fmt: off
class Container(DeclarativeContainer):
    """The parts of a riglm process. `part()` gives the part; `part.provider` is a function that gives it later."""

    # ---- what a process starts from
    _container: Provider["Container"] = Self()
    settings: Provider[Settings] = Dependency(instance_of=Settings)
    given: Any = settings.provided  # its attributes are values of the settings
    kind = given.storage.kind
    owns_process: Provider[bool] = Object(True)  # False in the process of an agent that uses the library
    prediction_timeout: Provider[float] = Object(10.0)  # seconds
    version: Provider[str] = Call(lazy("application.owners:riglm_version"))
    logs: Provider["JsonLogs | None"] = Object(None)
    configuration: Provider[Configuration] = Factory(Configuration, settings, Object({}))
    store_file: Provider["Path"] = Call(locations.store_path, settings)
    hasher: Provider["KeyedHasher"] = Singleton(
        lazy("adapters.private_files:load_hasher"), given.privacy.key, kind, store_file
    )
    client_name: Provider[str] = Call(lambda hasher, name: hasher.client_name(name), hasher)

    _accounts_path = Call(locations.accounts_path)
    account_file: Provider["AccountFile"] = Factory(  # of the user, for any settings
        lazy("adapters.mcp.oauth.accounts:AccountFile"), _accounts_path,
        Call(lazy("adapters.private_files:load_account_key"), _accounts_path).provider,
        Call(lazy("adapters.private_files:wait_for_lock")).provider
    )

    # ---- stores: not open yet
    _url = Call(locations.store_url, settings)
    _memory = Resource(lazy("adapters.analytics.engine:memory_database"))
    store_url: Provider[str] = Selector(kind, memory=_memory, sqlite=_url, postgresql=_url)
    analytics: Provider["AnalyticsPort"] = Factory(
        lazy("adapters.analytics.sql:SqlAnalytics"), store_url, timeout=given.storage.timeout,
        durable=given.storage.is_durable, names=client_name.provider
    )
    recording_analytics: Provider["AnalyticsPort"] = Factory(analytics, is_quarantining=True)
    _sqlite_choices = Singleton(lazy("adapters.analytics.prediction_store:SqliteChoices"), store_file)
    choices: Provider["AnalyticsPort | SqliteChoices"] = Selector(
        kind, memory=Resource(analytics), sqlite=_sqlite_choices, postgresql=Resource(analytics)
    )
    knowledge: Provider["KnowledgePort"] = Factory(
        lazy("adapters.analytics.knowledge:SqlKnowledge"), store_url, timeout=given.storage.timeout
    )
    _clickhouse_url = given.clickhouse.url.get_secret_value.call()
    clickhouse: Provider["ClickHouse"] = Factory(
        lazy("adapters.analytics.clickhouse:ClickHouse", missing_extra("clickhouse.url: the client", "clickhouse")),
        _clickhouse_url, days=given.clickhouse.days, installation=hasher.provided.installation_id.call(),
        timeout_seconds=given.clickhouse.timeout
    )
    _spool_path = Factory(lazy("adapters.spool.file_lock:spool_directory"), Call(locations.spool_root, settings))
    spool_path: Provider["Path"] = Factory(_spool_path, Call(locations.store_identity, settings))
    clickhouse_spool_path: Provider["Path | None"] = when(given.clickhouse.url, Factory(_spool_path, _clickhouse_url))
    spool_paths: Provider["list[Path]"] = Call(lambda *paths: [*filter(None, paths)], spool_path, clickhouse_spool_path)
    _spool = Factory(
        lazy("adapters.spool.sqlite_spool:SqliteSpool"), max_bytes=given.storage.spool.max_bytes,
        durable=given.storage.is_durable, store=Call(locations.local_store_path, settings)
    )
    spool: Provider["SpoolPort"] = Factory(_spool, spool_path)
    clickhouse_spool: Provider["SpoolPort"] = Factory(_spool, clickhouse_spool_path)
    state: Provider["SessionStatePort"] = Singleton(
        lazy("adapters.state:RedisSessionState", missing_extra("state.kind: the client of Redis", "redis")),
        given.state.url.get_secret_value.call(), prefix=given.state.prefix, deadline=given.state.deadline
    )

    # ---- recording
    metrics: Provider["PrometheusMetrics | None"] = when(
        given.control.enabled,
        Singleton(lazy("adapters.telemetry.metrics:PrometheusMetrics"), given.server_names.call(), version.provider)
    )
    tracer: Provider["OpenTelemetryTracer | None"] = Singleton(
        lazy("adapters.telemetry:choose_tracer"), given.tracing.enabled, Object(os.environ),
        version.provider
    )
    audit: Provider["AuditLog | None"] = when(
        given.audit.file, Resource(lazy("adapters.audit:audit_log"), given.audit.file)
    )
    clickhouse_recorder: Provider["Recorder | None"] = when(given.clickhouse.url, Singleton(
        lazy("application.tracking.recorder:Recorder"), clickhouse.provider, open_spool=clickhouse_spool.provider
    ))
    recorder: Provider["Recorder"] = Singleton(
        lazy("application.tracking.recorder:Recorder"), recording_analytics.provider,
        open_spool=when(given.storage.outlives_process, spool.provider), archive=clickhouse_recorder
    )
    maintenance: Provider["Maintenance"] = Singleton(
        lazy("application.tracking.maintenance:Maintenance"), recording_analytics.provider,
        Call(lambda recorder: recorder.counts().stored, recorder).provider, expiry=given.retention.expiry,
        most_pairs=given.learning.max_stored_pairs, idle_gap=given.sessions.idle_gap
    )
    tracking: Provider["TrackingService"] = Singleton(
        lazy("application.tracking.tracking_service:TrackingService"),
        recorder.provided.put, hasher, given.arguments, meter=metrics, audit=audit
    )

    # ---- what every request works with
    spooled_pins: Provider["Sequence[ToolPin]"] = Call(
        lazy("adapters.spool.sqlite_spool:spooled_pins"), kind, spool_path
    )
    pins: Provider["PinnedTools"] = Singleton(
        lazy("application.trust:PinnedTools"), given.on_change.call(), recorder.provided.put,
        on_report=Call(lazy("application.trust:report_change"), metrics, audit).provider,
        list_spooled=spooled_pins.provider
    )
    sessions: Provider["SessionRegistry"] = Singleton(
        lazy("application.sessions.registry:SessionRegistry"), tracking, hasher,
        Call(lazy("application.sessions.registry:identification_settings"), settings), shared=given.is_shared,
        find_project=Call(lazy("adapters.configuration.locations:project_root")).provider
    )
    owners = Singleton(lazy("application.owners:ToolOwners"), given.lone_server)
    listed: Provider["ListedTools"] = Singleton(lazy("application.proxy.catalogs:ListedTools"))
    catalogs: Provider["StoredCatalogs"] = Singleton(
        lazy("application.proxy.catalogs:StoredCatalogs"), hasher, recorder.provided.put
    )
    access: Provider["AccessRules | None"] = when(
        given.access, Singleton(lazy("domain.access:AccessRules"), given.access, given.server_names.call())
    )
    live_configuration: Provider["LiveConfiguration"] = Singleton(
        lazy("application.control.configuration:LiveConfiguration"), settings,
        open_store=when(given.storage.outlives_process, analytics.provider), fixed=configuration.provided.fixed_keys,
        create_handlers=Call(lazy("reload_handlers:create_reload_handlers"), _container).provider
    )

    # ---- prediction, on threads for the model, for learning, for what clients wait for, and for reads of the store
    prediction_worker = Singleton(lazy("application.worker:Worker"), "riglm-prediction")
    learning_worker = Singleton(lazy("application.worker:Worker"), "riglm-learning")
    estimating_worker = Singleton(lazy("application.worker:Worker"), "riglm-estimating")
    store_worker = Singleton(lazy("application.worker:Worker"), "riglm-asking")
    embedders: Provider["Embedders"] = Singleton(
        lazy("adapters.embedding.embedders:build_embedders"), given.embedder,
        Factory(lazy("adapters.analytics.vectors:SqlVectors"), store_url, timeout=given.storage.timeout)
    )
    predictor: Provider["PredictorPort"] = Factory(
        lazy("application.prediction.prediction_settings:make_predictor"), given.predictor
    )
    prediction_settings: Provider["PredictionSettings"] = Singleton(
        lazy("application.prediction.prediction_settings:prediction_settings"), settings
    )
    overrides: Provider["Overrides"] = Singleton(
        lazy("application.filtering.active_rules:Overrides"), store_worker, choices.provider
    )
    warm_sets: Provider["WarmSets"] = Singleton(
        lazy("application.prediction.warm_sets:WarmSets"), store_worker, estimating_worker, choices.provider,
        prediction_settings, owners.provided.server_of
    )
    prediction_state = Factory(
        lazy("application.prediction.prediction_state:PredictionState"), worker=prediction_worker,
        learning=learning_worker, owners=owners, open_store=analytics.provider, embedder=embedders.provided.always,
        put=recorder.provided.put, flush=Call(lambda recorder: recorder.flush(1.0), recorder).provider,
        key=hasher.provided.derived_key.call("learned pairs"), names=client_name.provider, clock=Object(time.time),
        limits_threads=owns_process
    )
    _embedder_provider = Call(getattr, given.embedder, "provider")  # `.provider` gives the provider itself
    _embedder_status = Call(
        lazy("ports.embedder:EmbedderStatus"), provider=_embedder_provider, model=given.embedder.model
    )
    prediction: Singleton["PredictionService"] = Singleton(
        lazy("application.prediction.prediction_service:PredictionService"), prediction_worker,
        prediction_state.provider, owners, _embedder_status, prediction_settings,
        timeout_seconds=prediction_timeout, meter=metrics
    )

    # ---- knowledge, lists, and what processes share
    voice: Provider["InnerVoice | None"] = when(given.knowledge.enabled, Singleton(
        lazy("application.knowledge.inner_voice:build_inner_voice"), given.knowledge, prediction_worker,
        embedders.provider, knowledge.provider, environment=Object(os.environ)
    ))
    filtering: Provider["FilteringService"] = Singleton(
        lazy("application.filtering.filtering_service:FilteringService"), given.filtering, prediction, usage=warm_sets,
        prices=given.prices.prices.call(), predictor=given.predictor.kind, overrides=overrides.provided.in_force,
        owner=owners.provided.of, access=access, is_steered=given.control.enabled
    )
    meta_tools: Provider["MetaTools"] = Singleton(
        lazy("application.filtering.meta_tools:create_meta_tools"), filtering, voice, given.knowledge.alias
    )
    list_changes: Provider["ListChanges"] = Singleton(lazy("application.proxy.list_changes:ListChanges"), filtering)
    sharing: Provider["SessionSharingService | None"] = when(given.is_shared, Singleton(
        lazy("application.session_sharing.session_sharing_service:build_sharing"), state,
        hasher.provided.derived_key.call("shared state"), sessions, tracking,
        when(given.intercepts_lists, filtering),
        link_seconds=given.downstream.session_idle, idle_gap=given.sessions.idle_gap
    ))
    shared_learning = Singleton(
        lazy("application.prediction.prediction_service:SharedLearning"), prediction, sharing.provided.news,
        prediction_worker
    )
    _always = Call(lazy("application.filtering.always_listed:create_always_listed"), voice, meta_tools)
    proxy_parts: Provider["ProxyParts"] = Singleton(
        lazy("application.proxy.parts:ProxyParts"), tracking=tracking, sessions=sessions, pins=pins, listed=listed,
        catalogs=catalogs, owners=owners, grace=given.timeouts.grace, longest_list=given.timeouts.list,
        filtering=when(given.intercepts_lists, filtering), meta_tools=when(given.intercepts_lists, meta_tools),
        always=when(given.intercepts_lists, _always), list_changes=when(given.intercepts_lists, list_changes),
        meter=metrics, tracer=tracer, sharing=sharing
    )
