"""The conductor: gives every client connection and every request of the modern era its way to the upstreams."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from riglm.application.connections.single_server import DualEraRouter, SingleServerConnection
from riglm.application.connections.single_server_modern import SingleServerModernHandler
from riglm.application.filter_middleware.filtering_modern import FilteringModernHandler
from riglm.application.filter_middleware.middleware import FilterMiddleware
from riglm.application.forwarding.services import RequestServices
from riglm.domain.access import AccessRules
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

if TYPE_CHECKING:
    from riglm.application.aggregation.merged_lists import MergedListCache

_log: Final = logging.getLogger("riglm.proxy")


class ProxyService(DownstreamPort):
    """Connects any number of clients to the upstreams."""

    def __init__(
        self,
        services: RequestServices,
        upstreams: Sequence[UpstreamPort],
        naming: Naming = "prefix",
        showing: FilterMiddleware | None = None,
        access: AccessRules | None = None,
        *,
        is_alone: bool | None = None,
    ) -> None:
        """Create a proxy in front of one or more `upstreams`; the names of several are merged by `naming`.

        `is_alone` is False for one upstream that is left of several: its tools are named as before.

        Without `showing`, tools are not filtered. Callers with `access` rules reach only the servers that these permit.
        """
        self._services = services
        self._upstreams = tuple(upstreams)
        self._naming = naming
        self._is_alone = len(self._upstreams) == 1 if is_alone is None else is_alone
        self._showing = showing
        self.arrived = None if services.overhead is None else services.overhead.begin
        self._access = access
        self._notify_others: Callable[[str], None] = lambda _: None
        self._separates_principals = any(upstream.spec.oauth.is_per_caller for upstream in upstreams)
        self._modern: dict[tuple[str, str], FilteringModernHandler] = {}
        self._modern_for("", "")

    @cached_property
    def _merged_lists(self) -> "MergedListCache":
        from riglm.application.aggregation.merged_lists import MergedListCache  # in front of several servers only

        return MergedListCache(self._naming)

    def modern_for(self, caller: Caller) -> FilteringModernHandler:
        return self._modern_for(caller.access, caller.principal if self._separates_principals else "")

    def _modern_for(self, access: str, principal: str) -> FilteringModernHandler:
        handler = self._modern.get((access, principal))
        if handler is None:
            handler = self._modern[access, principal] = self._create_modern(access, principal)
            handler.listeners.notify_others = self._notify_others
        return handler

    def _create_modern(self, access: str, principal: str) -> FilteringModernHandler:
        upstreams = self._permitted(access, principal)
        if self._is_alone:
            return SingleServerModernHandler(self._services, upstreams[0], self._showing, access)
        from riglm.application.aggregation.multi_server_modern import MultiServerModernHandler

        return MultiServerModernHandler(self._services, upstreams, self._merged_lists, self._showing, access)

    def _permitted(self, access: str, principal: str) -> Sequence[UpstreamPort]:
        """The servers that the rules `access` permit, all where there are no rules, as the principal uses them."""
        permitted: Iterable[UpstreamPort] = self._upstreams
        if access and self._access is not None:
            rules = self._access
            permitted = (each for each in permitted if rules.permits_server(access, each.spec.name))
        return [each.for_principal(principal) for each in permitted]

    def connect(self, caller: Caller, channel: ClientChannel, sink: ClientResponseSink) -> DualEraConnection:
        return DualEraRouter(self, caller, channel, sink)

    def hold(self, *, on: bool) -> None:
        for upstream in self._upstreams:
            upstream.hold(on=on)

    def converse(self, caller: Caller, channel: ClientChannel) -> HandshakeConnection:
        upstreams = self._permitted(caller.access, caller.principal)
        if self._is_alone:
            return SingleServerConnection(self._services, upstreams[0], caller, channel, self._showing)
        from riglm.application.aggregation.connection import MultiServerConnection

        return MultiServerConnection(self._services, upstreams, self._merged_lists, caller, channel, self._showing)

    def share(self, notify: Callable[[str], None]) -> Callable[[str], None]:
        """Publish clients whose list changed with `publish`; returns the handler for such messages."""
        self._notify_others = notify
        for handler in self._modern.values():
            handler.listeners.notify_others = notify

        def heard(client_id: str) -> None:
            for handler in self._modern.values():
                handler.listeners.heard(client_id)

        return heard

    async def check_names(self) -> None:
        """Look before the first client comes whether two servers claim one name.

        Raises:
            ConfigurationError: two servers do; both are named.
        """
        if not self._is_alone:
            from riglm.application.aggregation.upstream_group import check_names

            await check_names(self._upstreams, self._merged_lists)

    def sweep(self) -> None:
        """Forget what has been idle for too long; called now and then."""
        self._services.sessions.sweep()

    async def close(self) -> None:
        """End all links, then all sessions."""
        await asyncio.gather(*(handler.close() for handler in self._modern.values()))
        if self._showing is not None:
            await self._showing.close()
        ends = await asyncio.gather(*(upstream.close() for upstream in self._upstreams), return_exceptions=True)
        for upstream, failure in zip(self._upstreams, ends, strict=True):
            if isinstance(failure, Exception):
                _log.error("closing failed", extra={"upstream": upstream.spec.name}, exc_info=failure)
        self._services.sessions.close()
