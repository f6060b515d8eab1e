"""Opens the parts of a proxy in order, and closes them in reverse."""

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from riglm.adapters.configuration.locations import data_directory
from riglm.adapters.mcp.upstream.upstreams import Upstreams
from riglm.application.failing_open import FailingOpen
from riglm.application.proxy.proxy_service import ProxyService
from riglm.application.sessions.registry import SessionReset
from riglm.application.store_follower import StoreFollower
from riglm.container import Container
from riglm.domain.retention import ErasureRequest
from riglm.domain.tool import StoredToolCatalog
from riglm.ports.telemetry import MetricSources
from riglm.ports.upstream import UpstreamPort

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp

    from riglm.adapters.control.tokens import Tokens
    from riglm.application.control.running_proxy import RunningProxy
    from riglm.application.session_sharing.session_sharing_service import SessionSharingService

_SWEEP_SECONDS: Final = 30.0
_CATALOGS_SECONDS: Final = 0.25
_CHANGES_SECONDS: Final = 0.25  # reading them takes milliseconds; a store that is held is read later
_PINS_SECONDS: Final = 5.0  # without them, tools that may be held back are neither listed nor called
_CONTROL_SWITCH_SECONDS: Final = 0.0005  # the proxy's event loop waits no longer for the thread of the control API
_log: Final = logging.getLogger("riglm")


class ControlEndpoint(NamedTuple):
    """Where the control API listens, and the tokens that open it."""

    listener: "socket.socket"
    tokens: "Tokens"


@contextlib.asynccontextmanager
async def lifespan(
    container: Container, upstreams: Upstreams, control: ControlEndpoint | None = None
) -> AsyncIterator[ProxyService]:
    """A proxy whose parts are open, with the control API at its endpoint."""
    settings, recorder = container.settings(), container.recorder()
    maintenance = container.maintenance()
    container.tracking().on_listed(recorder.begin)
    with contextlib.ExitStack() as stack:
        stack.callback(container.shutdown_resources)
        for part in (container.tracer(), container.clickhouse_recorder(), recorder, maintenance):
            if part is not None:
                stack.enter_context(part)
        filtered = settings.intercepts_lists
        if settings.filtering.denies and not settings.filtering.is_on:
            _log.warning("filtering.enabled is false: what filtering.allowlist and filtering.denylist deny can be used")
        stack.enter_context(_working(container, filtered=filtered))
        async with contextlib.AsyncExitStack() as opened:
            if settings.is_shared:
                await opened.enter_async_context(container.state())
            ports = await opened.enter_async_context(upstreams.opened(container.listed().input_schema))
            _read_for_metrics(container, ports)
            await _recall_catalogs(container)
            changes = await opened.enter_async_context(_following_store(container))
            is_alone = bool(settings.lone_server)
            proxy = ProxyService(container.proxy_parts(), ports, settings.naming, container.access(), is_alone=is_alone)
            sharing = container.sharing()
            if sharing is not None:
                await sharing.begin()
                sharing.share_changes(proxy)
                if filtered:
                    container.shared_learning()
            if filtered or sharing is not None:
                maintenance.on_erased(_forgetting(container, sharing, filtered=filtered))
            tasks = [asyncio.create_task(_sweep(proxy, sharing))]
            try:
                async with _controlled(container, ports, control), _gateways(container, ports):
                    if filtered:
                        container.warm_sets().on_change(container.list_changes().rules_changed)
                        container.overrides().when_changed(container.list_changes().overrides_changed)
                    await changes.ready(_CHANGES_SECONDS)
                    await proxy.check_names()
                    yield proxy
            finally:
                for task in tasks:
                    task.cancel()
                await proxy.close()
                if filtered:
                    await _close_prediction(container)


@contextlib.contextmanager
def _working(container: Container, *, filtered: bool) -> Iterator[None]:
    """Run the threads that read the store, and those of prediction where lists are filtered."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(container.store_worker())
        if filtered:
            for worker in (container.prediction_worker(), container.learning_worker(), container.estimating_worker()):
                stack.enter_context(worker)
        yield


async def _recall_catalogs(container: Container) -> None:
    """Read the stored tool catalogs of several servers; the proxy does not wait long for a slow store."""
    settings, known = container.settings(), container.catalogs()
    if settings.lone_server or container.pins().is_strict:
        return  # one list is forwarded, and tools to hold back are compared first

    def read(fingerprints: Sequence[str]) -> Sequence[StoredToolCatalog]:
        return container.choices().list_tool_catalogs(fingerprints)  # opens the store, which may be unavailable

    job = container.store_worker().submit(lambda: known.load(settings.upstream_specs(), read))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.wrap_future(job), _CATALOGS_SECONDS)


@contextlib.asynccontextmanager
async def _following_store(container: Container) -> AsyncIterator[StoreFollower]:
    """Follow what other processes change in the store; wait for approvals if tools may be held back."""
    settings, pins = container.settings(), container.pins()
    readers = [_changed_settings_reader(container)] if settings.storage.outlives_process else []
    if settings.intercepts_lists or any(spec.gateway for spec in settings.upstream_specs()):
        readers.append(container.overrides().refresh)
    changes = StoreFollower(*readers)
    approvals = StoreFollower(lambda: pins.refresh(container.store_worker(), container.choices))
    following = [asyncio.create_task(each.follow()) for each in (changes, approvals)]
    try:
        if pins.is_strict:
            await pins.ready(_PINS_SECONDS)
        yield changes
    finally:
        await pins.close()
        for task in following:
            task.cancel()


def _changed_settings_reader(container: Container) -> Callable[[], Awaitable[None]]:
    """Return what reads changed settings; what applies them is made for the control API, or once there are some."""
    live = container.live_configuration() if container.settings().control.enabled else None
    guarded = FailingOpen(_log, "changed settings could not be read; those that were read last count, and")

    def find() -> Mapping[str, Any]:
        return container.choices().list_setting_changes()

    async def read() -> Mapping[str, Any]:
        return await asyncio.wrap_future(container.store_worker().submit(find))

    async def refresh() -> None:
        nonlocal live
        with guarded:
            if live is None and await read():
                live = container.live_configuration()
            if live is not None:
                await live.refresh(read)

    return refresh


async def _close_prediction(container: Container) -> None:
    """Close what works for a proxy that is closed already."""
    voice = container.voice()
    if voice is not None:
        await voice.close()
    await container.warm_sets().close()
    await container.prediction().close()


def _read_for_metrics(container: Container, upstreams: Sequence[UpstreamPort]) -> None:
    """Register sources for metrics that are read at a scrape."""
    metrics = container.metrics()
    if metrics is None:
        return
    sessions, filtering, prediction = container.sessions(), container.filtering(), container.prediction()
    archive = container.clickhouse_recorder()
    readings = MetricSources(
        records=container.recorder().counts,
        upstreams=lambda: [upstream.health() for upstream in upstreams],
        sessions=lambda: len(sessions),
        embedder=lambda: prediction.embedder_status() if filtering.predicts else None,
        prices=lambda: filtering.prices,
        archived=archive.counts if archive else None,
    )
    metrics.read_from(readings)


def _forgetting(
    container: Container, sharing: "SessionSharingService | None", *, filtered: bool
) -> Callable[[Sequence[ErasureRequest]], None]:
    """Return what discards erased sessions and what was learned from them; it is called on a different thread."""
    loop = asyncio.get_running_loop()
    remembering = [container.filtering().forget] if filtered else []
    reset = SessionReset(container.sessions(), remembering if sharing is None else [*remembering, sharing.forgotten])

    def forget(forgotten: Sequence[ErasureRequest]) -> None:
        reset.heard(forgotten)
        if filtered:
            container.prediction().relearn()

    def detach(forgotten: Sequence[ErasureRequest]) -> None:
        with contextlib.suppress(RuntimeError):  # it ends just now
            loop.call_soon_threadsafe(forget, forgotten)

    return detach


async def _sweep(proxy: ProxyService, sharing: "SessionSharingService | None") -> None:
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        proxy.sweep()
        if sharing is not None:
            await sharing.sweep()


@contextlib.asynccontextmanager
async def _gateways(container: Container, upstreams: Sequence[UpstreamPort]) -> AsyncIterator[None]:
    """Switch tools on and off in the gateways that are configured, as overrides do meanwhile."""
    managed = [(upstream, upstream.spec.gateway) for upstream in upstreams if upstream.spec.gateway is not None]
    if not managed:
        yield
        return
    from riglm.adapters.metamcp import MetaMcpNamespace
    from riglm.adapters.spool.file_lock import try_lock
    from riglm.application.control.overrides import update_gateway
    from riglm.application.worker import Worker

    with contextlib.ExitStack() as stack:
        updating = []
        for upstream, account in managed:
            namespace = MetaMcpNamespace(account, data_directory(os.environ), try_lock)
            stack.callback(namespace.close)
            worker = Worker(f"riglm-gateway-{upstream.spec.name}")
            worker.start()
            stack.callback(worker.stop)
            overrides, seconds = container.overrides().known, account.interval_seconds
            updating.append(
                update_gateway(namespace.update, upstream, container.proxy_parts(), overrides, worker, seconds)
            )
        tasks = [asyncio.create_task(each) for each in updating]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


@contextlib.asynccontextmanager
async def _controlled(
    container: Container, upstreams: Sequence[UpstreamPort], endpoint: ControlEndpoint | None
) -> AsyncIterator[None]:
    """Serve the control API meanwhile, if it has an endpoint."""
    metrics = container.metrics()
    if endpoint is None or metrics is None:
        yield
        return
    from riglm.adapters.control.server import ControlServer

    running = create_control(container, upstreams)
    control = container.settings().control

    def build_app() -> "ASGIApp":
        from riglm.adapters.control.app import create_app

        return create_app(running, control, endpoint.tokens, metrics.scrape, version=container.version())

    sys.setswitchinterval(_CONTROL_SWITCH_SECONDS)
    server = ControlServer(endpoint.listener, build_app)
    server.start()
    try:
        yield
    finally:
        await server.stop()
        running.close()


def create_control(container: Container, upstreams: Sequence[UpstreamPort]) -> "RunningProxy":
    """Return what the control API of a proxy in front of these upstreams reads and changes."""
    from riglm.application.control.running_proxy import RunningProxy

    settings = container.settings()
    return RunningProxy(
        parts=container.proxy_parts(),
        filtering=container.filtering(),
        prediction=container.prediction(),
        overrides=container.overrides(),
        recorder=container.recorder(),
        configuration=container.live_configuration(),
        upstreams=lambda: [upstream.health() for upstream in upstreams],
        specs=settings.upstream_specs(),
        version=container.version(),
        started_at=time.time(),
        store_kind=settings.storage.kind,
        open_store=container.analytics,
        open_archive=None if settings.clickhouse.url is None else container.clickhouse,
        retention_days=settings.retention.usage_days,
        audit=container.audit(),
    )
