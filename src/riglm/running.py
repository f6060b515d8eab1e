"""One riglm process from its start to its end.

The server of a stdio client is started before most of riglm is imported: both get ready at the same time.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from riglm.adapters.configuration.loading import Configuration
from riglm.adapters.configuration.locations import data_directory
from riglm.adapters.mcp.upstream.upstreams import Upstreams
from riglm.adapters.telemetry.logs import JsonLogs
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.schemas.section import StateSettings
from riglm.domain.schemas.settings import Settings

if TYPE_CHECKING:
    from riglm.adapters.mcp.oauth.accounts import AccountFile
    from riglm.application.proxy.proxy_service import ProxyService
    from riglm.container import Container
    from riglm.lifespan import ControlEndpoint

_log: Final = logging.getLogger("riglm")
_DEFAULT_THRESHOLD: Final = (700, 10, 10)  # Python's own; a start has a higher one
_SETTLE_SECONDS: Final = 1.0
_M_ARENA_MAX: Final = -8
_M_MMAP_THRESHOLD: Final = -3
_STORE_SECONDS: Final = 2.0  # a server of many clients starts once: it pays for the imports, not its first clients


def run_stdio(configuration: Configuration) -> int:
    """Serve one client on stdin and stdout until it leaves; the exit code."""
    settings = configuration.settings

    async def serve(proxy: "ProxyService", _: "Container", stop: asyncio.Event) -> None:
        from riglm.adapters.mcp.downstream.stdio import serve_stdio

        await serve_stdio(proxy, limit=settings.limits.message_bytes, stop=stop)

    filtering = settings.filtering.model_copy(update={"profile": _profile_here(settings.filtering)})
    # One client, one process. `StateSettings()` would build its schema, before the server is started.
    alone = settings.model_copy(update={"state": StateSettings.model_construct(), "filtering": filtering, "access": {}})
    return _run(alone, configuration, serve)


def _profile_here(filtering: FilteringSettings) -> str:
    """Return the profile with the deepest directory that riglm was started in, unless `filtering.profile` is given."""
    depths = {filtering.profile: 0}
    if "profile" not in filtering.model_fields_set:
        with contextlib.suppress(OSError):  # the working directory was deleted
            here = Path.cwd()
            for name, profile in filtering.profiles.items():
                directories = (Path(each).expanduser().resolve() for each in profile.directories)
                depths[name] = max((len(each.parts) for each in directories if here.is_relative_to(each)), default=0)
    return max(depths, key=depths.__getitem__)


def run_http(configuration: Configuration) -> int:
    """Serve clients over HTTP until a signal ends it; the exit code."""
    from riglm.adapters.mcp.downstream.http import HttpDownstream, bound_socket
    from riglm.adapters.spool.file_lock import sole_server

    settings = configuration.settings
    downstream = settings.downstream
    _share_heap()

    async def serve(proxy: "ProxyService", container: "Container", stop: asyncio.Event) -> None:
        filtering = (lambda: container.filtering().rules) if settings.intercepts_lists else None
        sharing = container.sharing()
        handshakes = None if sharing is None else sharing.handshakes
        await HttpDownstream(proxy, settings, handshakes, filtering, container.access()).serve(listener, stop)

    is_kept = settings.storage.kind != "memory"
    place = f"{downstream.host} port {downstream.port}"
    with sole_server(data_directory(os.environ), place) if is_kept else contextlib.nullcontext():
        listener = bound_socket(downstream.host, downstream.port)
        return _run(settings, configuration, serve, serves_many=True)


def _run(
    settings: Settings,
    configuration: Configuration,
    serve: "Callable[[ProxyService, Container, asyncio.Event], Awaitable[None]]",
    *,
    serves_many: bool = False,
) -> int:
    """Serve until the end; who `serves_many` has the store open before that, if it can be soon, and the control API."""

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        limit = settings.limits.message_bytes
        upstreams = Upstreams(settings.upstream_specs(), settings.timeouts, limit, _account_file)
        with contextlib.closing(upstreams):
            if not serves_many:
                await upstreams.start_early()
            await serve_with(upstreams, stop)

    async def serve_with(upstreams: Upstreams, stop: asyncio.Event) -> None:
        from riglm.application.knowledge.definition import silences_knowledge
        from riglm.container import Container
        from riglm.lifespan import lifespan

        if not silences_knowledge(os.environ):
            for warning in configuration.warnings:
                _log.warning("%s", warning)
        container = Container(settings=settings, configuration=configuration, logs=logs)
        recorder = container.recorder()
        if serves_many:
            recorder.open_at_once()
        async with lifespan(container, upstreams, control) as proxy:
            recorder.opened(_STORE_SECONDS)
            if serves_many:
                _settle()
            else:
                asyncio.get_running_loop().call_later(_SETTLE_SECONDS, _settle)  # the client waits for its first list
            await serve(proxy, container, stop)

    control = None
    with (
        JsonLogs(level=settings.logging.level, secrets=settings.secrets()) as logs,
        asyncio.Runner(loop_factory=_loop_factory()) as runner,
    ):
        if settings.control.enabled:
            control = _control_endpoint(settings, is_needed=serves_many)
        runner.run(main())
    return 0


def _account_file() -> "AccountFile":
    from riglm.container import Container  # the server is started before this is imported

    return Container().account_file()


def _control_endpoint(settings: Settings, *, is_needed: bool) -> "ControlEndpoint | None":
    """Return the control API's endpoint; None if it is optional and the port is in use."""
    from riglm.adapters.control.tokens import load_tokens
    from riglm.adapters.mcp.downstream.http import bound_socket
    from riglm.lifespan import ControlEndpoint

    tokens = load_tokens(settings.control, data_directory(os.environ))
    try:
        listener = bound_socket(
            settings.control.host, settings.control.port, section="control", option="--control-port"
        )
    except ConfigurationError as error:
        if is_needed:
            raise
        _log.warning("%s; riglm goes on without the control API", error)
        return None
    return ControlEndpoint(listener, tokens)


def _share_heap() -> None:
    """Let all threads allocate from one heap, and return large blocks to the system as soon as they are free.

    By default the C library keeps a heap for each thread, at the size that it had after the worst outage.
    """
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(AttributeError):  # only glibc has it
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_M_ARENA_MAX, 1)
            mallopt(_M_MMAP_THRESHOLD, 1 << 20)


def _settle() -> None:
    """Keep the garbage collector from walking what start made, which lives to the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_DEFAULT_THRESHOLD)
    gc.enable()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
