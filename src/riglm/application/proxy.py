"""The conductor: gives every client connection and every request of the modern era its way to the upstreams."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from riglm.application.aggregation.connection import MultiServerConnection
from riglm.application.aggregation.merged_lists import MergedListCache
from riglm.application.aggregation.modern_handler import MultiServerModernHandler
from riglm.application.aggregation.upstream_group import check_names
from riglm.application.connections.modern_handler import SingleServerModernHandler
from riglm.application.connections.single_server import DualEraRouter, SingleServerConnection
from riglm.application.filter_middleware.middleware import FilterMiddleware
from riglm.application.filter_middleware.modern_handler import FilteringModernHandler
from riglm.application.forwarding.services import RequestServices
from riglm.domain.naming import Naming
from riglm.ports.downstream import (
    Caller,
    ClientChannel,
    ClientResponseSink,
    DownstreamPort,
    DualEraConnection,
    HandshakeConnection,
)
from riglm.ports.upstream import UpstreamPort

_log: Final = logging.getLogger("riglm.proxy")


class ProxyService(DownstreamPort):
    """Connects any number of clients to the upstreams."""

    def __init__(
        self,
        services: RequestServices,
        upstreams: Sequence[UpstreamPort],
        naming: Naming = "prefix",
        showing: FilterMiddleware | None = None,
    ) -> None:
        """Create a proxy in front of one or more `upstreams`; the names of several are merged by `naming`.

        Without `showing`, tools are not filtered.
        """
        self._services = services
        self._upstreams = tuple(upstreams)
        self._merged_lists = MergedListCache(naming)
        self._showing = showing
        self.arrived = None if services.overhead is None else services.overhead.begin
        self.modern: FilteringModernHandler
        if len(self._upstreams) == 1:
            self.modern = SingleServerModernHandler(services, self._upstreams[0], showing)
        else:
            self.modern = MultiServerModernHandler(services, self._upstreams, self._merged_lists, showing)

    def connect(self, caller: Caller, channel: ClientChannel, sink: ClientResponseSink) -> DualEraConnection:
        return DualEraRouter(self, caller, channel, sink)

    def hold(self, *, on: bool) -> None:
        for upstream in self._upstreams:
            upstream.hold(on=on)

    def converse(self, caller: Caller, channel: ClientChannel) -> HandshakeConnection:
        if len(self._upstreams) > 1:
            return MultiServerConnection(
                self._services, self._upstreams, self._merged_lists, caller, channel, self._showing
            )
        return SingleServerConnection(self._services, self._upstreams[0], caller, channel, self._showing)

    def share(self, notify: Callable[[str], None]) -> Callable[[str], None]:
        """Publish clients whose list changed with `publish`; returns the handler for such messages."""
        self.modern.listeners.notify_others = notify
        return self.modern.listeners.heard

    async def check_names(self) -> None:
        """Look before the first client comes whether two servers claim one name.

        Raises:
            ConfigurationError: two servers do; both are named.
        """
        await check_names(self._upstreams, self._merged_lists)

    def sweep(self) -> None:
        """Forget what has been idle for too long; called now and then."""
        self._services.sessions.sweep()

    async def close(self) -> None:
        """End all links, then all sessions."""
        await self.modern.close()
        if self._showing is not None:
            await self._showing.close()
        ends = await asyncio.gather(*(upstream.close() for upstream in self._upstreams), return_exceptions=True)
        for upstream, failure in zip(self._upstreams, ends, strict=True):
            if isinstance(failure, Exception):
                _log.error("closing failed", extra={"upstream": upstream.spec.name}, exc_info=failure)
        self._services.sessions.close()
