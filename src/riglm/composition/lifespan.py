"""Opens what the container builds, and closes it in reverse order."""

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from riglm.adapters.mcp.upstream.factory import Upstreams
from riglm.application.identity import server_info
from riglm.application.proxy import ProxyService
from riglm.application.sessions.registry import SessionReset
from riglm.composition.container import Container
from riglm.composition.control import ControlEndpoint
from riglm.composition.gateways import gateways
from riglm.composition.prediction import SWITCH_SECONDS
from riglm.composition.storage import intercepts_lists, is_shared
from riglm.domain.retention import ErasureRequest
from riglm.domain.tool import StoredToolCatalog
from riglm.ports.telemetry import MetricSources
from riglm.ports.upstream import UpstreamPort

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from riglm.application.session_sharing.service import SessionSharingService

_SWEEP_SECONDS: Final = 30.0
_OVERRIDES_SECONDS: Final = 0.25  # reading them takes milliseconds; a store that is held is read later
_CATALOGS_SECONDS: Final = 0.25
_PINS_SECONDS: Final = 5.0  # without them, tools that may be held back are neither listed nor called
_log: Final = logging.getLogger("riglm")


@contextlib.asynccontextmanager
async def lifespan(
    container: Container, upstreams: Upstreams, control: "ControlEndpoint | None" = None
) -> AsyncIterator[ProxyService]:
    """A proxy whose parts are open, with the control API behind its door; they are closed in reverse order."""
    settings, services, recorder = container.settings, container.services, container.recorder
    container.tracking.on_listed(recorder.begin)
    tracer = container.tracer
    with contextlib.ExitStack() as stack:
        stack.callback(container.close)
        if tracer is not None:
            stack.enter_context(tracer)
        if container.clickhouse_recorder is not None:
            stack.enter_context(container.clickhouse_recorder)
        stack.enter_context(recorder)
        filtered = intercepts_lists(settings)
        stack.enter_context(container.maintenance)
        if settings.filtering.denies and not settings.filtering.is_on:
            _log.warning("filtering.enabled is false: what filtering.allowlist and filtering.denylist deny can be used")
        stack.enter_context(_working(container, filtered=filtered))
        async with contextlib.AsyncExitStack() as opened:
            if is_shared(settings):
                await opened.enter_async_context(container.state)
            ports = await opened.enter_async_context(upstreams.opened(services.catalogs.input_schema))
            read_for_metrics(container, ports)
            await _recall_catalogs(container)
            await opened.enter_async_context(_following_pins(container))
            showing = container.showing if filtered else None
            proxy = ProxyService(
                services, ports, settings.naming, showing, container.access, is_alone=bool(settings.lone_server)
            )
            sharing = container.sharing if is_shared(settings) else None
            if sharing is not None:
                await sharing.begin()
                sharing.share_changes(proxy)
                if filtered:
                    from riglm.application.prediction.shared_learning import SharedLearning

                    SharedLearning(container.prediction, sharing.news, container.worker)
            if filtered or sharing is not None:
                container.maintenance.when_forgotten(_letting_go(container, sharing, filtered=filtered))
            tasks = [asyncio.create_task(_sweep(proxy, sharing))]
            try:
                async with controlled(container, ports, control), gateways(container, ports):
                    if showing is not None:
                        container.warm_sets.on_change(showing.reconfigured)
                        container.overrides.when_changed(showing.overridden)
                        tasks.append(asyncio.create_task(container.overrides.follow()))
                        await container.overrides.ready(_OVERRIDES_SECONDS)
                    await proxy.check_names()
                    yield proxy
            finally:
                for task in tasks:
                    task.cancel()
                await proxy.close()
                if filtered:
                    await _closed_behind(container)


@contextlib.contextmanager
def _working(container: Container, *, filtered: bool) -> Iterator[None]:
    """Run the threads that read the store, and those of prediction where lists are filtered."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(container.asking)
        if filtered:
            for worker in (container.worker, container.learning, container.estimating):
                stack.enter_context(worker)
        yield


async def _recall_catalogs(container: Container) -> None:
    """Read the stored tool catalogs of several servers; the proxy does not wait long for a slow store."""
    known, specs = container.services.known_catalogs, container.settings.upstream_specs()
    if (
        container.settings.lone_server or container.pins.is_strict
    ):  # one list is forwarded, and tools to hold back are compared first
        return

    def read(fingerprints: Sequence[str]) -> Sequence[StoredToolCatalog]:
        return container.choices.list_tool_catalogs(fingerprints)  # opens the store, which may be unavailable

    job = container.asking.submit(lambda: known.load(specs, read))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.wrap_future(job), _CATALOGS_SECONDS)


@contextlib.asynccontextmanager
async def _following_pins(container: Container) -> AsyncIterator[None]:
    """Read what was approved, and compare lists with it; wait for it first if tools may be held back."""
    pins = container.pins
    following = asyncio.create_task(pins.follow(container.asking, lambda: container.choices))
    try:
        if pins.is_strict:
            await pins.ready(_PINS_SECONDS)
        yield
    finally:
        await pins.close()
        following.cancel()


async def _closed_behind(container: Container) -> None:
    """Close what works for a proxy that is closed already."""
    voice = container.voice
    if voice is not None:
        await voice.close()
    await container.warm_sets.close()
    await container.prediction.close()


@contextlib.asynccontextmanager
async def controlled(
    container: Container, upstreams: Sequence[UpstreamPort], door: "ControlEndpoint | None"
) -> AsyncIterator[None]:
    """The control API is served meanwhile, if it has a door."""
    metrics = container.metrics
    if door is None or metrics is None:
        yield
        return
    from riglm.adapters.control.server import ControlServer

    running, control = container.create_control(upstreams), container.settings.control

    def build_app() -> "ASGIApp":
        from riglm.adapters.control.app import create_app

        return create_app(running, control, door.tokens, metrics.scrape, version=server_info()["version"])

    sys.setswitchinterval(SWITCH_SECONDS)
    server = ControlServer(door.listener, build_app)
    server.start()
    try:
        yield
    finally:
        await server.stop()
        running.close()


def read_for_metrics(container: Container, upstreams: Sequence[UpstreamPort]) -> None:
    """Register sources for metrics that are read at a scrape."""
    metrics = container.metrics
    if metrics is None:
        return
    sessions, filtering, prediction = container.sessions, container.filtering, container.prediction
    readings = MetricSources(
        records=container.recorder.counts,
        upstreams=lambda: [upstream.health() for upstream in upstreams],
        sessions=lambda: len(sessions),
        embedder=lambda: prediction.embedder_status() if filtering.predicts else None,
        prices=lambda: filtering.prices,
        archived=container.clickhouse_recorder.counts if container.clickhouse_recorder else None,
    )
    metrics.read_from(readings)


def _letting_go(
    container: Container, sharing: "SessionSharingService | None", *, filtered: bool
) -> Callable[[Sequence[ErasureRequest]], None]:
    """Discard the session state of this process; called on a different thread."""
    loop = asyncio.get_running_loop()
    remembering = [container.filtering.forget] if filtered else []
    forgetting = SessionReset(container.sessions, remembering if sharing is None else [*remembering, sharing.forgotten])

    def detach(forgotten: Sequence[ErasureRequest]) -> None:
        with contextlib.suppress(RuntimeError):  # it ends just now
            loop.call_soon_threadsafe(forgetting.heard, forgotten)

    return detach


async def _sweep(proxy: ProxyService, sharing: "SessionSharingService | None") -> None:
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        proxy.sweep()
        if sharing is not None:
            await sharing.sweep()
