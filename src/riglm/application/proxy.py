"""The conductor: gives every client connection and every request of the modern era its way to the upstreams."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from riglm.application.aggregate import AggregateConversation
from riglm.application.aggregate_modern import AggregateModern
from riglm.application.connection import Connection
from riglm.application.conversation import DirectConversation
from riglm.application.listings import Listings
from riglm.application.preflight import check_names
from riglm.application.services import Services
from riglm.application.stateless import Stateless
from riglm.domain.naming import Naming
from riglm.ports.downstream import (
    Caller,
    ClientChannel,
    ClientConnection,
    Conversation,
    DownstreamPort,
    ModernService,
    ReplySink,
)
from riglm.ports.upstream import UpstreamPort

_log: Final = logging.getLogger("riglm.proxy")


class ProxyService(DownstreamPort):
    """Stands between any number of client connections and the upstreams."""

    def __init__(self, services: Services, upstreams: Sequence[UpstreamPort], naming: Naming = "prefix") -> None:
        """A proxy in front of `upstreams`, at least one; several are shown as one, with names by `naming`."""
        self._services = services
        self._upstreams = tuple(upstreams)
        self._listings = Listings(naming)
        self.modern: ModernService = (
            AggregateModern(services, self._upstreams, self._listings)
            if len(self._upstreams) > 1
            else Stateless(services, self._upstreams[0])
        )

    def connect(self, caller: Caller, channel: ClientChannel, sink: ReplySink) -> ClientConnection:
        """A connection that carries both eras."""
        return Connection(self, caller, channel, sink)

    def converse(self, caller: Caller, channel: ClientChannel) -> Conversation:
        """A conversation for a client that opens a connection with the handshake."""
        if len(self._upstreams) > 1:
            return AggregateConversation(self._services, self._upstreams, self._listings, caller, channel)
        return DirectConversation(self._services, self._upstreams[0], caller, channel)

    async def check_names(self) -> None:
        """Look before the first client comes whether two servers claim one name.

        Raises:
            ConfigurationError: two servers do; both are named.
        """
        await check_names(self._upstreams, self._listings)

    def sweep(self) -> None:
        """Forget what has been idle for too long; called now and then."""
        self._services.sessions.sweep()

    async def close(self) -> None:
        """End all links, then all sessions."""
        if isinstance(self.modern, AggregateModern):
            await self.modern.close()
        ends = await asyncio.gather(*(upstream.close() for upstream in self._upstreams), return_exceptions=True)
        for upstream, failure in zip(self._upstreams, ends, strict=True):
            if isinstance(failure, Exception):
                _log.error("closing failed", extra={"upstream": upstream.spec.name}, exc_info=failure)
        self._services.sessions.close()
