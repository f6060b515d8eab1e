"""The gateways behind riglm whose tools overrides switch on and off."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from riglm.adapters.configuration.loading import data_directory
from riglm.composition.container import Container
from riglm.composition.storage import intercepts_lists
from riglm.ports.upstream import UpstreamPort


@contextlib.asynccontextmanager
async def gateways(container: Container, upstreams: Sequence[UpstreamPort]) -> AsyncIterator[None]:
    """Update the gateways that are configured meanwhile."""
    managed = [(upstream, upstream.spec.gateway) for upstream in upstreams if upstream.spec.gateway is not None]
    if not managed:
        yield
        return
    from riglm.adapters.metamcp.namespace import MetaMcpNamespace
    from riglm.application.gateway_overrides import GatewayOverrides
    from riglm.application.worker import Worker

    with contextlib.ExitStack() as stack:
        # where lists are filtered, the overrides are followed already
        updating = [] if intercepts_lists(container.settings) else [container.overrides.follow()]
        for upstream, account in managed:
            namespace = MetaMcpNamespace(account, data_directory(os.environ), _hold)
            stack.callback(namespace.close)
            worker = Worker(f"riglm-gateway-{upstream.spec.name}")
            worker.start()
            stack.callback(worker.stop)
            overrides, seconds = container.overrides.known, account.interval_seconds
            gateway = GatewayOverrides(namespace, upstream, container.services, overrides, worker, seconds)
            updating.append(gateway.follow())
        tasks = [asyncio.create_task(each) for each in updating]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


def _hold(path: Path) -> Callable[[], None] | None:
    from riglm.adapters.spool.file_lock import FileLock, LockHeldError

    try:
        return FileLock(path).release
    except LockHeldError:
        return None
