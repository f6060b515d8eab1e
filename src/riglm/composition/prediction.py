"""What learns and predicts, and what chooses by it."""

import dataclasses
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from riglm.application.forwarding.services import RequestServices
from riglm.application.owners import ToolOwners
from riglm.application.recording.recorder import Recorder
from riglm.domain.hashing import KeyedHasher
from riglm.domain.schemas.settings import Settings
from riglm.ports.analytics import AnalyticsPort

if TYPE_CHECKING:
    from riglm.adapters.analytics.prediction_store import SqliteChoices
    from riglm.application.filter_middleware.middleware import FilterMiddleware
    from riglm.application.filtering.active_rules import Overrides
    from riglm.application.filtering.service import FilteringService
    from riglm.application.knowledge.inner_voice import InnerVoice
    from riglm.application.prediction.prediction_settings import PredictionSettings
    from riglm.application.prediction.prediction_state import PredictionStateLoader
    from riglm.application.prediction.service import PredictionService
    from riglm.application.prediction.shared_learning import SharedLearning
    from riglm.application.prediction.warm_sets import WarmSets
    from riglm.application.session_sharing.service import SessionSharingService
    from riglm.application.worker import Worker
    from riglm.ports.embedder import Embedders
    from riglm.ports.predictor import PredictorPort
    from riglm.ports.telemetry import MeterPort

DEFAULT_COVERAGE: Final = 0.95
"""The share of calls that the calibrator aims at while lists are sized by price."""

_FLUSH_SECONDS: Final = 1.0  # spooled records are learned at the next start

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


def make_embedders(settings: Settings, url: str) -> "Embedders":
    """Create the embedder that the parts of a process share. It keeps vectors in the database at `url`."""
    from riglm.adapters.analytics.vectors import SqlVectors
    from riglm.adapters.embedding.factory import SharedEmbedder, build_embedders
    from riglm.adapters.embedding.supervision import socket_directory

    vectors = SqlVectors(url, timeout=settings.storage.timeout)
    made = build_embedders(settings.embedder, vectors, socket_directory(os.environ))
    return dataclasses.replace(made, always=SharedEmbedder(made.always))


def make_worker(name: str) -> "Worker":
    """A thread for what would hold the event loop."""
    from riglm.application.worker import Worker

    return Worker(name)


def make_overrides(asking: "Worker", open_choices: "Callable[[], AnalyticsPort | SqliteChoices]") -> "Overrides":
    """What people decided by hand."""
    from riglm.application.filtering.active_rules import Overrides

    return Overrides(asking, open_choices)


def make_prediction(
    settings: Settings,
    worker: "Worker",
    services: RequestServices,
    recorder: Recorder,
    hasher: KeyedHasher,
    open_store: Callable[[], AnalyticsPort],
    meter: "MeterPort | None",
    embedders: "Callable[[], Embedders]",
    *,
    is_guest: bool = False,
) -> "PredictionService":
    """What learns and predicts; models and the past are loaded on the worker.

    A library in a host process leaves process-wide settings unchanged, and can wait for the model.
    """
    from riglm.application.prediction.service import TIMEOUT, PredictionService
    from riglm.ports.embedder import EmbedderStatus

    def recollection() -> "PredictionStateLoader":
        from riglm.application.prediction.prediction_state import PredictionStateLoader
        from riglm.domain.coverage import CoverageCalibrator

        if not is_guest:
            _set_process()
        filtering = settings.filtering
        return PredictionStateLoader(
            open_store=open_store,
            make_predictor=lambda: build_predictor(settings),
            make_embedder=lambda: embedders().always,
            make_coverage=lambda: CoverageCalibrator(
                filtering.coverage or DEFAULT_COVERAGE, filtering.min_tools, filtering.max_tools
            ),
            put=recorder.put,
            flush=lambda: recorder.flush(_FLUSH_SECONDS),
            most_pairs=settings.learning.max_pairs,
            key=hasher.derived_key("learned pairs"),
            names=hasher.client_name,
            by_principal=settings.learning.scope == "principal",
        )

    asked = settings.embedder
    configured = EmbedderStatus.before_loading(asked.provider, asked.model)
    return PredictionService(
        worker,
        recollection,
        services.owners,
        configured,
        scope=settings.learning.scope,
        timeout_seconds=asked.deadline if is_guest else TIMEOUT,
        meter=meter,
    )


def _set_process() -> None:
    from threadpoolctl import threadpool_limits

    sys.setswitchinterval(SWITCH_SECONDS)
    threadpool_limits(1, user_api="blas")  # products this small only wait for a second thread


def make_warm_sets(
    settings: Settings, asking: "Worker", open_choices: "Callable[[], AnalyticsPort | SqliteChoices]"
) -> "WarmSets":
    """Return the recorded use that lists are made from."""
    from riglm.application.prediction.warm_sets import WarmSets

    by_principal = settings.learning.scope == "principal"
    return WarmSets(asking, open_choices, period=settings.filtering.period, by_principal=by_principal)


def make_owners(settings: Settings) -> ToolOwners:
    """Which server a tool belongs to."""
    specs = settings.upstream_specs()
    return ToolOwners(specs[0].name if len(specs) == 1 else "")


def make_filtering(
    settings: Settings,
    services: RequestServices,
    prediction: "PredictionService",
    warm_sets: "WarmSets",
    overrides: "Overrides",
) -> "FilteringService":
    """What decides which tools are shown."""
    from riglm.application.filtering.service import FilteringService

    return FilteringService(
        settings.filtering,
        prediction,
        usage=warm_sets,
        prices=settings.prices.prices(),
        predictor=settings.predictor.kind,
        overrides=overrides.in_force,
        owner=services.owners.of,
        is_steered=settings.control.enabled,
    )


def make_showing(
    settings: Settings, services: RequestServices, filtering: "FilteringService", voice: "InnerVoice | None"
) -> "FilterMiddleware":
    """Create the filter middleware and the meta-tools."""
    from riglm.application.filter_middleware.middleware import FilterMiddleware
    from riglm.application.filtering.meta_tools import MetaTools
    from riglm.application.knowledge.definition import NAME

    alias = settings.knowledge.alias
    names = (NAME,) if alias in (None, NAME) else (alias, NAME)
    meta_tools = MetaTools(filtering, voice, names)
    if voice is None:
        return FilterMiddleware(services, filtering, meta_tools)
    from riglm.application.filter_middleware.middleware import AlwaysListed
    from riglm.application.knowledge.definition import definition

    return FilterMiddleware(
        services, filtering, meta_tools, AlwaysListed(names[0], definition(names[0]), voice.get_ready)
    )


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


def make_converging(
    prediction: "PredictionService",
    sharing: "SessionSharingService",
    worker: "Worker",
    open_store: Callable[[], AnalyticsPort],
) -> "SharedLearning":
    """What learns along with other processes."""
    from riglm.application.prediction.shared_learning import SharedLearning

    return SharedLearning(prediction, sharing.news, worker, open_store)
