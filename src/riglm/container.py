"""The composition root: the one place that knows which adapter stands behind which port.

The container builds, `lifespan` opens and closes: constructors do no I/O. Adapters are imported when they are chosen,
and the store by the thread that writes to it, so that a start waits for nothing that it does not need.
"""

import asyncio
import contextlib
import gc
import hashlib
import importlib.util
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from riglm.adapters.configuration.data_directory import data_directory
from riglm.adapters.configuration.loading import Configuration
from riglm.adapters.telemetry.logs import JsonLogs
from riglm.application.catalogues import Catalogues
from riglm.application.forgetting import Forgetting
from riglm.application.identity import server_info
from riglm.application.overhead import Overhead
from riglm.application.owners import ToolOwners
from riglm.application.proxy import ProxyService
from riglm.application.recording.maintenance import Maintenance
from riglm.application.recording.recorder import Recorder
from riglm.application.recording.tracking import TrackingService
from riglm.application.services import Services
from riglm.application.sessions import Evidence, SessionRegistry
from riglm.domain.errors import ConfigurationError
from riglm.domain.forgetting import Forgotten
from riglm.domain.hashing import KEY_BYTES, KeyedHasher
from riglm.domain.schemas.settings import Settings
from riglm.domain.schemas.state import State
from riglm.injection import containers, providers
from riglm.ports.analytics import AnalyticsPort
from riglm.ports.telemetry import Readings
from riglm.ports.upstream import UpstreamPort

if TYPE_CHECKING:  # imported when lists are filtered; numpy comes with the first, on the worker
    from starlette.types import ASGIApp

    from riglm.adapters.analytics.sqlite_choices import SqliteChoices
    from riglm.adapters.control.rights import Tokens
    from riglm.adapters.telemetry.metrics import PrometheusMetrics
    from riglm.adapters.telemetry.tracing import OpenTelemetryTracer
    from riglm.application.control.configuration import LiveConfiguration
    from riglm.application.control.service import ControlService
    from riglm.application.filtering import FilteringService
    from riglm.application.overrides import Overrides
    from riglm.application.prediction.converging import Converging
    from riglm.application.prediction.knowledge import Recollection
    from riglm.application.prediction.plan import Plan
    from riglm.application.prediction.service import PredictionService
    from riglm.application.prediction.worker import Worker
    from riglm.application.sharing.sharing import Sharing
    from riglm.application.showing.showing import Showing
    from riglm.application.tracing.traces import Traces
    from riglm.ports.embedder import EmbedderPort
    from riglm.ports.predictor import PredictorPort
    from riglm.ports.session_state import SessionStatePort
    from riglm.ports.spool import SpoolPort
    from riglm.ports.telemetry import MeterPort, TracerPort

_SWEEP_SECONDS = 30.0
_USUAL_THRESHOLD = (700, 10, 10)  # Python's own; a start has a higher one
_STORE_SECONDS = 2.0  # a server of many clients starts once: better it than its first clients pays for the imports
_OVERRIDES_SECONDS = 0.25  # reading them takes milliseconds; a store that is held is read later

_OTLP_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_SWITCH_SECONDS = 0.0005  # while another thread learns or shows, the event loop waits no longer for it; by default 5 ms

_log = logging.getLogger("riglm")


def store_path(settings: Settings) -> Path:
    """The database file; where the store is elsewhere, riglm still keeps its key in the directory of this file."""
    named = settings.storage.path
    return Path(named).expanduser() if named else data_directory(os.environ) / "riglm.db"


def store_url(settings: Settings) -> str:
    """Where the database is, with its password."""
    url = settings.storage.url
    return f"sqlite:///{store_path(settings)}" if url is None else url.get_secret_value()


def _memory() -> AnalyticsPort:
    from riglm.adapters.analytics.memory import InMemoryAnalytics

    return InMemoryAnalytics()


def _sql(settings: Settings, hasher: Callable[[], KeyedHasher], *, sets_aside: bool = False) -> AnalyticsPort:
    from riglm.adapters.analytics.sql import SqlAnalytics

    storage = settings.storage
    return SqlAnalytics(
        store_url(settings),
        timeout=storage.timeout,
        durable=storage.durability == "full",
        sets_aside=sets_aside,
        names=lambda name: hasher().client_name(name),  # whoever only reads needs no key
    )


def spool_path(settings: Settings) -> Path:
    """The directory of the spools of all processes that record into this store."""
    from riglm.adapters.spool.place import spool_directory

    url, named = settings.storage.url, settings.storage.spool.path
    store = url.get_secret_value() if url else str(store_path(settings).absolute())
    return spool_directory(Path(named).expanduser() if named else data_directory(os.environ) / "spool", store)


def _recorder(settings: Settings, open_store: Callable[[], AnalyticsPort]) -> Recorder:
    def open_spool() -> "SpoolPort":
        from riglm.adapters.spool.files import FileSpool

        storage = settings.storage
        durable = storage.durability == "full"
        return FileSpool(spool_path(settings), max_bytes=storage.spool.max_bytes, durable=durable)

    return Recorder(open_store, open_spool=None if settings.storage.kind == "memory" else open_spool)


def _hasher(settings: Settings) -> KeyedHasher:
    from riglm.adapters.analytics.keyfile import load_or_create_key

    if settings.privacy.key is not None:
        return KeyedHasher(hashlib.sha256(settings.privacy.key.get_secret_value().encode()).digest())
    if settings.storage.kind == "memory":
        return KeyedHasher(os.urandom(KEY_BYTES))
    try:
        return KeyedHasher(load_or_create_key(store_path(settings).parent / "riglm.key"))
    except ConfigurationError as error:
        _log.warning("%s; until the next start the key is one in memory, and its hashes match no others", error)
        return KeyedHasher(os.urandom(KEY_BYTES))


def _metrics(settings: Settings) -> "PrometheusMetrics | None":
    """What is counted for the control API, if that is on."""
    if not settings.control.enabled:
        return None
    from riglm.adapters.telemetry.metrics import PrometheusMetrics

    return PrometheusMetrics([spec.name for spec in settings.upstream_specs()], lambda: server_info()["version"])


def _overhead(meter: "MeterPort | None") -> Overhead | None:
    return None if meter is None else Overhead(meter)


def _wants_traces(settings: Settings, environment: Mapping[str, str]) -> bool:
    """Whether spans are wanted: the standard's variables can switch them off, and on where nothing is configured."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    named = any(environment.get(name) for name in _OTLP_ENDPOINTS)
    return named if settings.tracing.enabled is None else settings.tracing.enabled


def _tracer(settings: Settings) -> "OpenTelemetryTracer | None":
    """What makes spans, if any are wanted."""
    if not _wants_traces(settings, os.environ):
        return None
    try:
        from riglm.adapters.telemetry.tracing import OpenTelemetryTracer
    except ModuleNotFoundError as error:
        words = "OpenTelemetry is not installed — fix: pip install 'riglm[otel]'"
        if settings.tracing.enabled:
            raise ConfigurationError(f"tracing.enabled: {words}") from error
        _log.warning("OTEL_EXPORTER_OTLP_ENDPOINT is set, but %s, or set tracing.enabled: false", words)
        return None
    return OpenTelemetryTracer(lambda: server_info()["version"])


def _traces(tracer: "TracerPort | None") -> "Traces | None":
    if tracer is None:
        return None
    from riglm.application.tracing.traces import Traces

    return Traces(tracer)


def _is_shared(settings: Settings) -> bool:
    """Whether other processes may go on with the sessions of this one."""
    return settings.state.kind != "memory"


def _stands_in_the_way(settings: Settings) -> bool:
    """Whether the filter looks at lists and calls, or may be switched on while riglm runs."""
    return settings.filtering.is_on or settings.control.enabled


def _evidence(settings: Settings) -> Evidence:
    sessions = settings.sessions
    return Evidence(
        meta_keys=sessions.meta_keys,
        environment_keys=sessions.environment_keys,
        environment=os.environ,
        idle_gap=sessions.idle_gap,
        most_kept=settings.downstream.max_sessions,
    )


def build_predictor(settings: Settings) -> "PredictorPort":
    """The predictor that the configuration asks for; one that was not written here under guard.

    Raises:
        ConfigurationError: there is none of this kind, or it does not take its options.
    """
    from riglm.adapters.prediction.selection import select_predictor

    chosen = select_predictor(settings.predictor.kind, settings.predictor.options)
    if type(chosen).__module__.startswith("riglm.adapters."):
        return chosen
    from riglm.application.prediction.guarding import GuardedPredictor

    return GuardedPredictor(chosen, select_predictor("hybrid"))


def build_embedder(settings: Settings) -> "EmbedderPort":
    """The embedder that the configuration asks for, with its vectors kept in the store; not open yet."""
    from riglm.adapters.analytics.vectors import InMemoryVectors, SqlVectors
    from riglm.adapters.embedding import building

    if settings.storage.kind == "memory":
        return building.build_embedder(settings.embedder, InMemoryVectors())
    vectors = SqlVectors(store_url(settings), timeout=settings.storage.timeout)
    return building.build_embedder(settings.embedder, vectors)


def _sqlite_choices(settings: Settings) -> "SqliteChoices":
    from riglm.adapters.analytics.sqlite_choices import SqliteChoices

    return SqliteChoices(store_path(settings))


def _kept_open(settings: Settings, hasher: Callable[[], KeyedHasher]) -> Iterator[AnalyticsPort]:
    """A server's store, open from the first question on: what was decided is asked for again and again."""
    with _sql(settings, hasher) as store:
        yield store


def _worker(name: str) -> "Worker":
    from riglm.application.prediction.worker import Worker

    return Worker(name)


def _overrides(asking: "Worker", open_choices: "Callable[[], AnalyticsPort | SqliteChoices]") -> "Overrides":
    from riglm.application.overrides import Overrides

    return Overrides(asking, open_choices)


def _prediction(
    settings: Settings,
    worker: "Worker",
    asking: "Worker",
    services: Services,
    recorder: Recorder,
    hasher: KeyedHasher,
    open_store: Callable[[], AnalyticsPort],
    open_choices: "Callable[[], AnalyticsPort | SqliteChoices]",
    meter: "MeterPort | None",
) -> "PredictionService":
    from riglm.application.prediction.service import PredictionService
    from riglm.application.prediction.warm_sets import WarmSets
    from riglm.ports.embedder import EmbedderStatus

    def recollection() -> "Recollection":
        from riglm.application.prediction.knowledge import Recollection
        from riglm.domain.coverage import CoverageCalibrator

        sys.setswitchinterval(_SWITCH_SECONDS)
        filtering = settings.filtering
        return Recollection(
            open_store=open_store,
            make_predictor=lambda: build_predictor(settings),
            make_embedder=lambda: build_embedder(settings),
            make_coverage=lambda: CoverageCalibrator(filtering.coverage, filtering.min_tools, filtering.max_tools),
            put=recorder.put,
            most_pairs=settings.learning.max_pairs,
            key=hasher.derived_key("learned pairs"),
            by_principal=settings.learning.scope == "principal",
        )

    asked = settings.embedder
    configured = EmbedderStatus(
        provider=asked.provider,
        model=asked.model,
        status="loading",
        actual_provider="none",
        actual_model="",
        dimensions=0,
        is_fallback_active=False,
        semantic_quality="none",
    )
    warm_sets = WarmSets(open_choices, settings.filtering.epoch, settings.filtering.coverage)
    return PredictionService(
        worker,
        recollection,
        services.owners,
        warm_sets,
        configured,
        asking=asking,
        predictor=settings.predictor.kind,
        scope=settings.learning.scope,
        meter=meter,
    )


def _owners(settings: Settings) -> ToolOwners:
    specs = settings.upstream_specs()
    return ToolOwners(specs[0].name if len(specs) == 1 else "")


def _filtering(
    settings: Settings, services: Services, prediction: "PredictionService", overrides: "Overrides"
) -> "FilteringService":
    from riglm.application.filtering import FilteringService

    return FilteringService(
        settings.filtering,
        prediction,
        predictor=settings.predictor.kind,
        overrides=overrides.in_force,
        owner=services.owners.of,
        is_steered=settings.control.enabled,
    )


def _showing(services: Services, filtering: "FilteringService") -> "Showing":
    from riglm.application.meta_tools import MetaTools
    from riglm.application.showing.showing import Showing

    return Showing(services, filtering, MetaTools(filtering))


def _plan(settings: Settings) -> "Plan":
    from riglm.application.prediction.plan import Plan

    rules = settings.filtering
    return Plan(
        predictor=settings.predictor.kind,
        make_predictor=lambda: build_predictor(settings),
        scope=settings.learning.scope,
        most_pairs=settings.learning.max_pairs,
        coverage=rules.coverage,
        least=rules.min_tools,
        most=rules.max_tools,
        epoch=rules.epoch,
    )


def _maintenance(
    settings: Settings,
    recorder: Recorder,
    open_store: Callable[[], AnalyticsPort],
    prediction: "Callable[[], PredictionService]",
) -> Maintenance:
    loop = asyncio.get_running_loop()

    def relearn() -> None:
        with contextlib.suppress(RuntimeError):  # it ends just now
            loop.call_soon_threadsafe(lambda: prediction().relearn())

    return Maintenance(
        open_store,
        lambda: recorder.counts().stored,
        expiry=settings.retention.expiry,
        on_forgotten=relearn if _stands_in_the_way(settings) else None,
        idle_gap=settings.sessions.idle_gap,
    )


def _live(
    settings: Settings,
    configuration: Configuration | None,
    logs: JsonLogs | None,
    filtering: "FilteringService",
    showing: "Showing",
    prediction: "PredictionService",
    tracking: TrackingService,
    sessions: SessionRegistry,
    maintenance: Maintenance,
) -> "LiveConfiguration":
    from riglm.adapters.configuration.persisting import ConfigurationDocuments
    from riglm.application.control.configuration import LiveConfiguration
    from riglm.application.control.following import FilteringFollower, Follower, Following, PredictionFollower

    def learned_anew() -> None:
        filtering.rechoose()
        showing.reconfigured()

    prediction.when_anew(learned_anew)
    followers: list[Follower] = [
        FilteringFollower(filtering, showing.reconfigured),
        PredictionFollower(prediction, _plan, build_predictor),
        Following(lambda new: new.arguments, tracking.take_arguments),
        Following(_evidence, sessions.look_for),
        Following(lambda new: new.sessions.idle_gap, maintenance.end_idle_after),
        Following(lambda new: new.retention, lambda retention: maintenance.keep(retention.expiry)),
    ]
    read = configuration or Configuration(settings, {})
    if logs is not None:
        known = read.settings.secrets()
        of_logs = Following(
            lambda new: (new.logging.level, (*known, *new.secrets())), lambda given: logs.follow(*given)
        )
        followers.append(of_logs)
    return LiveConfiguration(settings, ConfigurationDocuments(read), followers)


def _state(settings: Settings) -> "SessionStatePort":
    try:
        from riglm.adapters.state.redis import RedisSessionState
    except ModuleNotFoundError as error:
        words = "state.kind: the client of Redis is not installed — fix: pip install 'riglm[redis]'"
        raise ConfigurationError(words) from error
    chosen = settings.state
    url = chosen.url.get_secret_value() if chosen.url else ""
    return RedisSessionState(url, prefix=chosen.prefix, deadline=chosen.deadline)


def _sharing(
    settings: Settings,
    state: "SessionStatePort",
    hasher: KeyedHasher,
    sessions: SessionRegistry,
    tracking: TrackingService,
    filtering: "Callable[[], FilteringService]",
) -> "Sharing":
    from riglm.application.sharing.building import build_sharing

    idle = settings.downstream.session_idle
    return build_sharing(
        state,
        hasher.derived_key("shared state"),
        sessions,
        tracking,
        filtering() if _stands_in_the_way(settings) else None,
        link_seconds=idle,
        session_seconds=max(settings.sessions.idle_gap, idle),
    )


def _converging(
    settings: Settings,
    prediction: "PredictionService",
    sharing: "Sharing",
    worker: "Worker",
    open_store: Callable[[], AnalyticsPort],
) -> "Converging":
    from riglm.application.prediction.converging import Converging

    return Converging(prediction, sharing.news, worker, open_store, settings.learning.max_pairs)


def _control(
    settings: Settings,
    services: Services,
    filtering: "FilteringService",
    prediction: "PredictionService",
    overrides: "Overrides",
    recorder: Recorder,
    live: "LiveConfiguration",
    open_store: Callable[[], AnalyticsPort],
    upstreams: Sequence[UpstreamPort],
) -> "ControlService":
    from riglm.application.control.building import Proxy, build_control
    from riglm.application.control.health import Identity

    identity = Identity(
        version=server_info()["version"],
        started_at=time.time(),
        store_kind=settings.storage.kind,
        specs=settings.upstream_specs(),
    )
    proxy = Proxy(
        services=services,
        filtering=filtering,
        prediction=prediction,
        overrides=overrides,
        recorder=recorder,
        configuration=live,
        upstreams=lambda: [upstream.health() for upstream in upstreams],
    )
    return build_control(proxy, identity, open_store)


class Container(containers.DeclarativeContainer):
    """Everything that one riglm process is made of."""

    settings: providers.Dependency[Settings] = providers.Dependency(instance_of=Settings)
    configuration: providers.Dependency[Configuration | None] = providers.Dependency(default=None)
    logs: providers.Dependency[JsonLogs | None] = providers.Dependency(default=None)
    hasher: providers.Provider[KeyedHasher] = providers.Singleton(_hasher, settings)
    analytics: providers.Provider[AnalyticsPort] = providers.Selector(
        settings.provided.storage.kind,
        memory=providers.Singleton(_memory),
        sqlite=providers.Factory(_sql, settings, hasher.provider),
        postgresql=providers.Factory(_sql, settings, hasher.provider),
    )
    kept: providers.Provider[AnalyticsPort] = providers.Selector(  # whoever opens it may set a damaged file aside
        settings.provided.storage.kind,
        memory=analytics,
        sqlite=providers.Factory(_sql, settings, hasher.provider, sets_aside=True),
        postgresql=analytics,
    )
    recorder: providers.Provider[Recorder] = providers.Singleton(_recorder, settings, kept.provider)
    tracer: "providers.Provider[OpenTelemetryTracer | None]" = providers.Singleton(_tracer, settings)
    metrics: "providers.Provider[PrometheusMetrics | None]" = providers.Singleton(_metrics, settings)
    tracking: providers.Provider[TrackingService] = providers.Singleton(
        TrackingService, recorder, hasher, settings, meter=metrics
    )
    sessions: providers.Provider[SessionRegistry] = providers.Singleton(
        SessionRegistry,
        tracking,
        hasher,
        providers.Callable(_evidence, settings),
        shared=providers.Callable(_is_shared, settings),
    )
    services: providers.Provider[Services] = providers.Singleton(
        Services,
        tracking=tracking,
        sessions=sessions,
        catalogues=providers.Singleton(Catalogues),
        owners=providers.Singleton(_owners, settings),
        grace=settings.provided.timeouts.grace,
        overhead=providers.Callable(_overhead, metrics),
    )
    choices: "providers.Provider[AnalyticsPort | SqliteChoices]" = providers.Selector(
        settings.provided.storage.kind,
        memory=analytics,
        sqlite=providers.Factory(_sqlite_choices, settings),
        postgresql=providers.Resource(_kept_open, settings, hasher.provider),
    )
    worker: "providers.Provider[Worker]" = providers.Singleton(_worker, "riglm-prediction")
    asking: "providers.Provider[Worker]" = providers.Singleton(_worker, "riglm-asking")
    overrides: "providers.Provider[Overrides]" = providers.Singleton(_overrides, asking, choices.provider)
    prediction: "providers.Provider[PredictionService]" = providers.Singleton(
        _prediction, settings, worker, asking, services, recorder, hasher, analytics.provider, choices.provider, metrics
    )
    filtering: "providers.Provider[FilteringService]" = providers.Singleton(
        _filtering, settings, services, prediction, overrides
    )
    showing: "providers.Provider[Showing]" = providers.Singleton(_showing, services, filtering)
    state: "providers.Provider[SessionStatePort]" = providers.Singleton(_state, settings)
    sharing: "providers.Provider[Sharing]" = providers.Singleton(
        _sharing, settings, state, hasher, sessions, tracking, filtering.provider
    )
    converging: "providers.Provider[Converging]" = providers.Singleton(
        _converging, settings, prediction, sharing, worker, analytics.provider
    )
    maintenance: providers.Provider[Maintenance] = providers.Singleton(
        _maintenance, settings, recorder, kept.provider, prediction.provider
    )
    live: "providers.Provider[LiveConfiguration]" = providers.Singleton(
        _live, settings, configuration, logs, filtering, showing, prediction, tracking, sessions, maintenance
    )
    control: "providers.Provider[ControlService]" = providers.Factory(
        _control, settings, services, filtering, prediction, overrides, recorder, live, analytics.provider
    )


def build(settings: Settings, configuration: Configuration | None = None, logs: JsonLogs | None = None) -> Container:
    """A container for these settings; `configuration` says where they come from, `logs` takes what is logged.

    Raises:
        ConfigurationError: they name a store whose driver is not installed.
    """
    if settings.storage.kind == "postgresql" and importlib.util.find_spec("psycopg") is None:
        raise ConfigurationError(
            "storage.kind: PostgreSQL's driver is not installed — fix: pip install 'riglm[postgresql]'"
        )
    return Container(settings=settings, configuration=configuration, logs=logs)


@contextlib.asynccontextmanager
async def lifespan(container: Container, control: "ControlDoor | None" = None) -> AsyncIterator[ProxyService]:
    """A proxy whose parts are open, with the control API behind its door; they are closed in reverse order."""
    from riglm.adapters.mcp.upstream.building import Upstreams

    settings = container.settings()
    services = container.services()
    recorder = container.recorder()
    container.tracking().when_listed(recorder.begin)
    upstreams = Upstreams(settings.upstream_specs(), settings.timeouts, settings.limits.message_bytes)
    tracer = container.tracer()
    with contextlib.ExitStack() as stack:
        if tracer is not None:
            stack.enter_context(tracer)
        stack.enter_context(recorder)
        filtered = _stands_in_the_way(settings)
        stack.enter_context(container.maintenance())
        if settings.filtering.denies and not settings.filtering.is_on:
            _log.warning("filtering.enabled is false: what filtering.allowlist and filtering.denylist deny can be used")
        if filtered:
            stack.callback(container.shutdown_resources)
            stack.enter_context(container.worker())
            stack.enter_context(container.asking())
        async with contextlib.AsyncExitStack() as opened:
            if _is_shared(settings):
                await opened.enter_async_context(container.state())
            ports = await opened.enter_async_context(upstreams.opened(services.catalogues.input_schema))
            _read_for_metrics(container, ports)
            showing = container.showing() if filtered else None
            proxy = ProxyService(services, ports, settings.naming, showing, _traces(tracer))
            sharing = container.sharing() if _is_shared(settings) else None
            if sharing is not None:
                await sharing.begin()
                sharing.share_changes(proxy)
                if filtered:
                    container.converging()
            if filtered or sharing is not None:
                container.maintenance().when_forgotten(_letting_go(container, sharing, filtered=filtered))
            tasks = [asyncio.create_task(_sweep(proxy, sharing))]
            try:
                async with _controlled(container, ports, control):
                    if showing is not None:
                        container.overrides().when_changed(showing.overridden)
                        tasks.append(asyncio.create_task(container.overrides().follow()))
                        await container.overrides().ready(_OVERRIDES_SECONDS)
                    await proxy.check_names()
                    yield proxy
            finally:
                for task in tasks:
                    task.cancel()
                await proxy.close()
                if filtered:
                    await container.prediction().close()


@contextlib.asynccontextmanager
async def _controlled(
    container: Container, upstreams: Sequence[UpstreamPort], door: "ControlDoor | None"
) -> AsyncIterator[None]:
    """The control API is served meanwhile, if it has a door."""
    metrics = container.metrics()
    if door is None or metrics is None:
        yield
        return
    from riglm.adapters.control.server import ControlServer

    service, control = container.control(upstreams=upstreams), container.settings().control

    def build_app() -> "ASGIApp":
        from riglm.adapters.control.app import control_app

        return control_app(service, control, door.tokens, metrics.scrape, version=server_info()["version"])

    sys.setswitchinterval(_SWITCH_SECONDS)
    server = ControlServer(door.listener, build_app)
    server.start()
    try:
        yield
    finally:
        await server.stop()
        service.close()


def _read_for_metrics(container: Container, upstreams: Sequence[UpstreamPort]) -> None:
    """Let whoever scrapes metrics see also what is not counted, but known."""
    metrics = container.metrics()
    if metrics is None:
        return
    sessions, filtering, prediction = container.sessions(), container.filtering(), container.prediction()
    readings = Readings(
        records=container.recorder().counts,
        upstreams=lambda: [upstream.health() for upstream in upstreams],
        sessions=lambda: len(sessions),
        embedder=lambda: prediction.embedder_status() if filtering.predicts else None,
    )
    metrics.read_from(readings)


def _letting_go(
    container: Container, sharing: "Sharing | None", *, filtered: bool
) -> Callable[[Sequence[Forgotten]], None]:
    """Has what this process remembers of sessions let go; asked on another thread."""
    loop = asyncio.get_running_loop()
    remembering = [container.filtering().forget] if filtered else []
    forgetting = Forgetting(container.sessions(), remembering if sharing is None else [*remembering, sharing.forgotten])

    def let_go(forgotten: Sequence[Forgotten]) -> None:
        with contextlib.suppress(RuntimeError):  # it ends just now
            loop.call_soon_threadsafe(forgetting.heard, forgotten)

    return let_go


async def _sweep(proxy: ProxyService, sharing: "Sharing | None") -> None:
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        proxy.sweep()
        if sharing is not None:
            await sharing.sweep()


def run_stdio(configuration: Configuration) -> int:
    """Serve one client on stdin and stdout until it leaves; the exit code."""
    from riglm.adapters.mcp.downstream.stdio import serve_stdio

    settings = configuration.settings

    async def serve(proxy: ProxyService, _: Container, stop: asyncio.Event) -> None:
        await serve_stdio(proxy, limit=settings.limits.message_bytes, stop=stop)

    alone = settings.model_copy(update={"state": State()})  # nobody else can speak with this client
    return _run(alone, configuration, serve)


def run_http(configuration: Configuration) -> int:
    """Serve clients over HTTP until a signal ends it; the exit code."""
    from riglm.adapters.mcp.downstream.http import HttpDownstream, bound_socket

    settings = configuration.settings
    downstream = settings.downstream

    async def serve(proxy: ProxyService, container: Container, stop: asyncio.Event) -> None:
        sharing = container.sharing() if _is_shared(settings) else None
        await HttpDownstream(proxy, settings, sharing).serve(listener, stop)

    with _alone(settings):
        listener = bound_socket(downstream.host, downstream.port)
        return _run(settings, configuration, serve, serves_many=True)


def _alone(settings: Settings) -> contextlib.AbstractContextManager[None]:
    """Keep a second server off the data directory, as far as anything is kept there."""
    from riglm.adapters.spool.sole_server import sole_server

    if settings.storage.kind == "memory":
        return contextlib.nullcontext()
    downstream = settings.downstream
    return sole_server(data_directory(os.environ), f"{downstream.host} port {downstream.port}")


class ControlDoor(NamedTuple):
    """Where the control API listens, and the tokens that open it."""

    listener: socket.socket
    tokens: "Tokens"


def _door(settings: Settings, *, is_needed: bool) -> ControlDoor | None:
    """Where the control API is to be found; None when it is off, or not needed and somebody else listens there."""
    control = settings.control
    if not control.enabled:
        return None
    from riglm.adapters.control.rights import guarded
    from riglm.adapters.mcp.downstream.http import bound_socket

    tokens = guarded(control, data_directory(os.environ))
    try:
        listener = bound_socket(control.host, control.port, section="control", option="--control-port")
    except ConfigurationError as error:
        if is_needed:
            raise
        _log.warning("%s; riglm goes on without the control API", error)
        return None
    return ControlDoor(listener, tokens)


def _run(
    settings: Settings,
    configuration: Configuration,
    serve: Callable[[ProxyService, Container, asyncio.Event], Awaitable[None]],
    *,
    serves_many: bool = False,
) -> int:
    """Serve until the end; who `serves_many` has the store open before that, if it can be soon, and the control API."""

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        container = build(settings, configuration, logs)
        recorder = container.recorder()
        if serves_many:
            recorder.open_at_once()
        async with lifespan(container, control) as proxy:
            recorder.opened(_STORE_SECONDS)
            gc.collect()
            gc.freeze()  # what start made lives to the end: the collector need not walk it again
            gc.set_threshold(*_USUAL_THRESHOLD)
            await serve(proxy, container, stop)

    with (
        JsonLogs(level=settings.logging.level, secrets=settings.secrets()) as logs,
        asyncio.Runner(loop_factory=_loop_factory()) as runner,
    ):
        control = _door(settings, is_needed=serves_many)
        runner.run(main())
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
