"""Everything that one riglm process is made of."""

import asyncio
import contextlib
import dataclasses
import hashlib
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from riglm.adapters.configuration.loading import Configuration
from riglm.adapters.telemetry.logs import JsonLogs
from riglm.adapters.version_control import project_root
from riglm.application.forwarding.catalogs import CatalogCache, KnownCatalogs
from riglm.application.forwarding.proxied_request import OverheadMeter
from riglm.application.forwarding.services import RequestServices
from riglm.application.identity import server_info
from riglm.application.owners import ToolOwners
from riglm.application.sessions.registry import SessionRegistry
from riglm.application.tracking.maintenance import STORED_PAIRS_RATIO, Maintenance
from riglm.application.tracking.recorder import Recorder
from riglm.application.tracking.tracking_service import TrackingService
from riglm.application.trust.pinned_tools import PinnedTools
from riglm.composition.prediction import SWITCH_SECONDS, plan_of
from riglm.composition.storage import (
    intercepts_lists,
    is_shared,
    is_silent,
    list_spooled_pins,
    session_evidence,
    spool_path,
    store_path,
    store_url,
    wants_traces,
)
from riglm.domain.access_rules import AccessRules
from riglm.domain.audit import AuditEvent, AuditLog
from riglm.domain.errors import ConfigurationError
from riglm.domain.exposure import Exposure
from riglm.domain.hashing import KEY_BYTES, KeyedHasher
from riglm.domain.invocation import ToolInvocation
from riglm.domain.naming import server_in
from riglm.domain.schemas.settings import Settings
from riglm.domain.session import Session
from riglm.domain.tool_pin import ToolPin
from riglm.ports.analytics import AnalyticsPort, Record, SessionClosed
from riglm.ports.upstream import UpstreamPort

if TYPE_CHECKING:  # adapters and services are imported when they are chosen
    from riglm.adapters.analytics.clickhouse import ClickHouse
    from riglm.adapters.analytics.prediction_store import SqliteChoices
    from riglm.adapters.telemetry.metrics import PrometheusMetrics
    from riglm.adapters.telemetry.tracing import OpenTelemetryTracer
    from riglm.application.control.configuration import LiveConfiguration
    from riglm.application.control.running_proxy import RunningProxy
    from riglm.application.filter_middleware.middleware import FilterMiddleware
    from riglm.application.filtering.active_rules import Overrides
    from riglm.application.filtering.service import FilteringService
    from riglm.application.knowledge.inner_voice import InnerVoice
    from riglm.application.prediction.prediction_settings import PredictionSettings
    from riglm.application.prediction.prediction_state import OnLoop, PredictionState
    from riglm.application.prediction.service import PredictionService
    from riglm.application.prediction.warm_sets import WarmSets
    from riglm.application.session_sharing.service import SessionSharingService
    from riglm.application.worker import Worker
    from riglm.ports.embedder import Embedders
    from riglm.ports.knowledge import KnowledgePort
    from riglm.ports.session_state import SessionStatePort
    from riglm.ports.spool import SpoolPort

_FLUSH_SECONDS: Final = 1.0  # spooled records are learned at the next start
_log: Final = logging.getLogger("riglm")


class Container:
    """Makes each part of a riglm process when it is first needed, and opens nothing but what `close` closes."""

    def __init__(
        self,
        settings: Settings,
        configuration: Configuration | None = None,
        logs: JsonLogs | None = None,
        *,
        is_guest: bool = False,
    ) -> None:
        """`configuration` says where the settings come from, `logs` takes what is logged.

        A library `is_guest` in the process of its host: it leaves process-wide settings unchanged, and may wait for
        the model.

        Raises:
            ConfigurationError: the settings name a store whose driver is not installed.
        """
        if settings.storage.kind == "postgresql" and importlib.util.find_spec("psycopg") is None:
            raise ConfigurationError(
                "storage.kind: PostgreSQL's driver is not installed — fix: pip install 'riglm[postgresql]'"
            )
        self.settings: Final = settings
        self._configuration = configuration or Configuration(settings, {})
        self._logs = logs
        self._is_guest = is_guest
        self._resources = contextlib.ExitStack()
        self.url: Final = store_url(settings) if settings.storage.kind != "memory" else self._memory_database()
        """Where the database is, with its password."""

    def close(self) -> None:
        """Close the stores that stay open; a database in memory is lost."""
        self._resources.close()

    def _memory_database(self) -> str:
        from riglm.adapters.analytics.sqlite import memory_database

        return self._resources.enter_context(memory_database())

    @cached_property
    def hasher(self) -> KeyedHasher:
        """The key of all hashes, made at the first start."""
        from riglm.adapters.keyfile import load_or_create_key

        if self.settings.privacy.key is not None:
            return KeyedHasher(hashlib.sha256(self.settings.privacy.key.get_secret_value().encode()).digest())
        if self.settings.storage.kind == "memory":
            return KeyedHasher(os.urandom(KEY_BYTES))
        try:
            return KeyedHasher(load_or_create_key(store_path(self.settings).parent / "riglm.key"))
        except ConfigurationError as error:
            _log.warning("%s; until the next start the key is one in memory, and its hashes match no others", error)
            return KeyedHasher(os.urandom(KEY_BYTES))

    def create_store(self, *, is_quarantining: bool = False) -> AnalyticsPort:
        """Create the store; it is not open yet."""
        from riglm.adapters.analytics.sql import SqlAnalytics

        storage = self.settings.storage
        return SqlAnalytics(
            self.url,
            timeout=storage.timeout,
            durable=storage.durability == "full",
            is_quarantining=is_quarantining,
            names=lambda name: self.hasher.client_name(name),  # noqa: PLW0108  # read-only commands need no key
        )

    def create_knowledge(self) -> "KnowledgePort":
        """Create the store of knowledge; it is not open yet."""
        from riglm.adapters.analytics.knowledge import SqlKnowledge

        return SqlKnowledge(self.url, timeout=self.settings.storage.timeout)

    @cached_property
    def choices(self) -> "AnalyticsPort | SqliteChoices":
        """Overrides and warm sets, read again and again: from SQLite without the weight of the whole store."""
        if self.settings.storage.kind != "sqlite":
            return self._resources.enter_context(self.create_store())
        from riglm.adapters.analytics.prediction_store import SqliteChoices

        return SqliteChoices(store_path(self.settings))

    @cached_property
    def recorder(self) -> Recorder:
        """Stores records, with a spool where there is a disk for it."""
        second = self.clickhouse_recorder

        def send(record: Record) -> None:
            if second is not None and isinstance(record, Session | SessionClosed | ToolInvocation | Exposure):
                second.put(record)

        return Recorder(
            lambda: self.create_store(is_quarantining=True),
            open_spool=None if self.settings.storage.kind == "memory" else lambda: self._create_spool(""),
            on_record=None if second is None else send,
        )

    @cached_property
    def clickhouse_recorder(self) -> Recorder | None:
        """Sends records to ClickHouse, with a separate queue and spool; None if that is not configured.

        Raises:
            ConfigurationError: it is configured, and its client is not installed.
        """
        url = self.settings.clickhouse.url
        if url is None:
            return None
        return Recorder(self.create_clickhouse, open_spool=lambda: self._create_spool(url.get_secret_value()))

    def create_clickhouse(self, timeout_seconds: float | None = None) -> "ClickHouse":
        """Create the store in ClickHouse, which is configured; it is not open yet.

        Args:
            timeout_seconds: maximum time for a response, by default the configured one.

        Raises:
            ConfigurationError: its client is not installed.
        """
        settings = self.settings.clickhouse
        try:
            from riglm.adapters.analytics.clickhouse import ClickHouse
        except ModuleNotFoundError as error:
            words = "clickhouse.url: the client is not installed — fix: pip install 'riglm[clickhouse]'"
            raise ConfigurationError(words) from error
        url = settings.url.get_secret_value() if settings.url else ""
        seconds = settings.timeout if timeout_seconds is None else timeout_seconds
        installation = self.hasher.derived_key("clickhouse").hex()[:16]
        return ClickHouse(url, days=settings.days, installation=installation, timeout_seconds=seconds)

    def _create_spool(self, store: str) -> "SpoolPort":
        from riglm.adapters.spool.sqlite import SqliteSpool

        storage = self.settings.storage
        return SqliteSpool(
            spool_path(self.settings, store),
            max_bytes=storage.spool.max_bytes,
            durable=storage.durability == "full",
            store=store_path(self.settings) if storage.url is None else None,
        )

    @cached_property
    def maintenance(self) -> Maintenance:
        """Store maintenance, which also retrains after records were erased."""
        loop = asyncio.get_running_loop()

        def relearn() -> None:
            self.prediction.relearn()

        def on_forgotten() -> None:
            with contextlib.suppress(RuntimeError):  # it ends just now
                loop.call_soon_threadsafe(relearn)

        return Maintenance(
            lambda: self.create_store(is_quarantining=True),
            lambda: self.recorder.counts().stored,
            expiry=self.settings.retention.expiry,
            on_forgotten=on_forgotten if intercepts_lists(self.settings) else None,
            most_pairs=STORED_PAIRS_RATIO * self.settings.learning.max_pairs,
            idle_gap=self.settings.sessions.idle_gap,
        )

    @cached_property
    def tracer(self) -> "OpenTelemetryTracer | None":
        """Makes spans, if any are wanted.

        Raises:
            ConfigurationError: they are configured, and OpenTelemetry is not installed.
        """
        if not wants_traces(self.settings, os.environ):
            return None
        try:
            from riglm.adapters.telemetry.tracing import OpenTelemetryTracer
        except ModuleNotFoundError as error:
            words = "OpenTelemetry is not installed — fix: pip install 'riglm[otel]'"
            if self.settings.tracing.enabled:
                raise ConfigurationError(f"tracing.enabled: {words}") from error
            _log.warning("OTEL_EXPORTER_OTLP_ENDPOINT is set, but %s, or set tracing.enabled: false", words)
            return None
        return OpenTelemetryTracer(lambda: server_info()["version"])

    @cached_property
    def metrics(self) -> "PrometheusMetrics | None":
        """The metrics of the control API, if that is on."""
        if not self.settings.control.enabled:
            return None
        from riglm.adapters.telemetry.metrics import PrometheusMetrics

        names = [spec.name for spec in self.settings.upstream_specs()]
        return PrometheusMetrics(names, lambda: server_info()["version"])

    @cached_property
    def tracking(self) -> TrackingService:
        """Turns what happens into records."""
        return TrackingService(self.recorder, self.hasher, self.settings, meter=self.metrics, audit=self.audit)

    @cached_property
    def audit(self) -> AuditLog | None:
        """Appends to the audit log, if there is one."""
        if not self.settings.audit.file:
            return None
        from riglm.adapters.audit.file import AuditFile

        file = AuditFile(self.settings.audit.file)
        self._resources.callback(file.close)
        return file.record

    @cached_property
    def sessions(self) -> SessionRegistry:
        """The sessions of this process."""
        evidence, shared = session_evidence(self.settings), is_shared(self.settings)
        return SessionRegistry(self.tracking, self.hasher, evidence, shared=shared, find_project=project_root)

    @cached_property
    def pins(self) -> PinnedTools:
        """What was approved of the servers' tools."""
        return PinnedTools(
            self.settings.on_change(),
            self.recorder.put,
            on_report=self._on_changed_tool,
            list_spooled=lambda: list_spooled_pins(self.settings),
        )

    def _on_changed_tool(self, pin: ToolPin) -> None:
        if self.metrics is not None:
            self.metrics.tool_changed(pin)
        if self.audit is not None and pin.change is not None:
            about = {"upstream": pin.server, "tool": pin.name, "change": pin.change.value, "digest": pin.seen_digest}
            self.audit(AuditEvent.TOOL_CHANGED, about)

    @cached_property
    def services(self) -> RequestServices:
        """The services that every connection works with."""
        timeouts = self.settings.timeouts
        return RequestServices(
            tracking=self.tracking,
            sessions=self.sessions,
            catalogs=CatalogCache(),
            known_catalogs=KnownCatalogs(self.hasher, self.recorder.put, pins=self.pins),
            owners=ToolOwners(self.settings.lone_server),
            grace=timeouts.grace,
            longest_list=timeouts.list,
            overhead=None if self.metrics is None else OverheadMeter(self.metrics),
            tracer=self.tracer,
        )

    @cached_property
    def worker(self) -> "Worker":
        """The thread of prediction."""
        from riglm.application.worker import Worker

        return Worker("riglm-prediction")

    @cached_property
    def learning(self) -> "Worker":
        """The thread that learns recorded sessions."""
        from riglm.application.worker import Worker

        return Worker("riglm-learning")

    @cached_property
    def estimating(self) -> "Worker":
        """The thread that estimates what lists are made from, which clients wait for."""
        from riglm.application.worker import Worker

        return Worker("riglm-estimating")

    @cached_property
    def asking(self) -> "Worker":
        """The thread that reads the store."""
        from riglm.application.worker import Worker

        return Worker("riglm-asking")

    @cached_property
    def overrides(self) -> "Overrides":
        """What people decided by hand."""
        from riglm.application.filtering.active_rules import Overrides

        return Overrides(self.asking, lambda: self.choices)

    @cached_property
    def _prediction_settings(self) -> "PredictionSettings":
        return plan_of(self.settings)

    @cached_property
    def warm_sets(self) -> "WarmSets":
        """The recorded use that lists are made from."""
        from riglm.application.prediction.warm_sets import WarmSets

        return WarmSets(
            self.asking,
            self.estimating,
            lambda: self.choices,
            self._prediction_settings,
            lambda tool: self.services.owners.of(tool)[0] or server_in(tool),
        )

    @cached_property
    def embedders(self) -> "Embedders":
        """The embedder that the parts of a process share. It keeps vectors in the database."""
        from riglm.adapters.analytics.vectors import SqlVectors
        from riglm.adapters.embedding.factory import SharedEmbedder, build_embedders
        from riglm.adapters.embedding.supervision import socket_directory

        vectors = SqlVectors(self.url, timeout=self.settings.storage.timeout)
        made = build_embedders(self.settings.embedder, vectors, socket_directory(os.environ))
        return dataclasses.replace(made, always=SharedEmbedder(made.always))

    @cached_property
    def prediction(self) -> "PredictionService":
        """Learns and predicts; models and the past are loaded on the worker."""
        from riglm.application.prediction.service import TIMEOUT, PredictionService
        from riglm.ports.embedder import EmbedderStatus

        asked = self.settings.embedder
        return PredictionService(
            self.worker,
            self._make_prediction_state,
            self.services.owners,
            EmbedderStatus.before_loading(asked.provider, asked.model),
            self._prediction_settings,
            timeout_seconds=asked.deadline if self._is_guest else TIMEOUT,
            meter=self.metrics,
        )

    def _make_prediction_state(self, settings: "PredictionSettings", on_loop: "OnLoop") -> "PredictionState":
        from riglm.application.prediction.prediction_state import PredictionState

        if not self._is_guest:
            from threadpoolctl import threadpool_limits

            sys.setswitchinterval(SWITCH_SECONDS)
            threadpool_limits(1, user_api="blas")  # products this small only wait for a second thread
        return PredictionState(
            settings,
            on_loop,
            worker=self.worker,
            learning=self.learning,
            owners=self.services.owners,
            open_store=self.create_store,
            embedder=self.embedders.always,
            put=self.recorder.put,
            flush=lambda: self.recorder.flush(_FLUSH_SECONDS),
            key=self.hasher.derived_key("learned pairs"),
            names=self.hasher.client_name,
            clock=time.time,
        )

    @cached_property
    def voice(self) -> "InnerVoice | None":
        """The tool that asks the knowledge store, if it is switched on."""
        if not self.settings.knowledge.enabled:
            return None
        from riglm.application.knowledge.inner_voice import build_inner_voice

        return build_inner_voice(
            self.settings.knowledge, self.worker, lambda: self.embedders, self.create_knowledge, is_silent=is_silent()
        )

    @cached_property
    def access(self) -> AccessRules | None:
        """The access rules, if there are any."""
        servers = (spec.name for spec in self.settings.upstream_specs())
        return AccessRules(self.settings.access, servers) if self.settings.access else None

    @cached_property
    def filtering(self) -> "FilteringService":
        """Decides which tools are shown."""
        from riglm.application.filtering.service import FilteringService

        return FilteringService(
            self.settings.filtering,
            self.prediction,
            usage=self.warm_sets,
            prices=self.settings.prices.prices(),
            predictor=self.settings.predictor.kind,
            overrides=self.overrides.in_force,
            owner=self.services.owners.of,
            access=self.access,
            is_steered=self.settings.control.enabled,
        )

    @cached_property
    def showing(self) -> "FilterMiddleware":
        """The filter middleware with the meta-tools."""
        from riglm.application.filter_middleware.middleware import AlwaysListed, FilterMiddleware
        from riglm.application.filtering.meta_tools import MetaTools
        from riglm.application.knowledge.definition import NAME, definition

        alias = self.settings.knowledge.alias
        names = (NAME,) if alias in (None, NAME) else (alias, NAME)
        always = None
        if self.voice is not None:
            always = AlwaysListed(names[0], definition(names[0]), self.voice.get_ready)
        return FilterMiddleware(self.services, self.filtering, MetaTools(self.filtering, self.voice, names), always)

    @cached_property
    def state(self) -> "SessionStatePort":
        """What processes share of their sessions.

        Raises:
            ConfigurationError: the client of Redis is not installed.
        """
        try:
            from riglm.adapters.state.redis import RedisSessionState
        except ModuleNotFoundError as error:
            words = "state.kind: the client of Redis is not installed — fix: pip install 'riglm[redis]'"
            raise ConfigurationError(words) from error
        chosen = self.settings.state
        url = chosen.url.get_secret_value() if chosen.url else ""
        return RedisSessionState(url, prefix=chosen.prefix, deadline=chosen.deadline)

    @cached_property
    def sharing(self) -> "SessionSharingService":
        """Shares sessions with other processes."""
        from riglm.application.session_sharing.service import build_sharing

        idle = self.settings.downstream.session_idle
        return build_sharing(
            self.state,
            self.hasher.derived_key("shared state"),
            self.sessions,
            self.tracking,
            self.filtering if intercepts_lists(self.settings) else None,
            link_seconds=idle,
            session_seconds=max(self.settings.sessions.idle_gap, idle),
        )

    @cached_property
    def live(self) -> "LiveConfiguration":
        """The configuration that can be changed, with all that follows it."""
        from riglm.adapters.configuration.persisting import ConfigurationDocuments
        from riglm.application.control.configuration import LiveConfiguration
        from riglm.composition.control import reload_handlers

        documents = ConfigurationDocuments(self._configuration)
        return LiveConfiguration(self.settings, documents, reload_handlers(self, self._configuration, self._logs))

    def create_control(self, upstreams: Sequence[UpstreamPort]) -> "RunningProxy":
        """What the control API reads and changes."""
        from riglm.application.control.running_proxy import RunningProxy

        return RunningProxy(
            services=self.services,
            filtering=self.filtering,
            prediction=self.prediction,
            overrides=self.overrides,
            recorder=self.recorder,
            configuration=self.live,
            upstreams=lambda: [upstream.health() for upstream in upstreams],
            specs=self.settings.upstream_specs(),
            version=server_info()["version"],
            started_at=time.time(),
            store_kind=self.settings.storage.kind,
            open_store=self.create_store,
            open_archive=None if self.settings.clickhouse.url is None else self.create_clickhouse,
            retention_days=self.settings.retention.usage_days,
            audit=self.audit,
        )
