"""An upstream that is reached over channels of any kind."""

import asyncio
from abc import abstractmethod
from functools import partial

from riglm.adapters.mcp.upstream.channel import MessageChannel, Receiver
from riglm.adapters.mcp.upstream.channel_link import ChannelLink, ReconnectingLink
from riglm.adapters.mcp.upstream.deadlines import UpstreamTimeouts
from riglm.adapters.mcp.upstream.health import ChannelHealthTracker
from riglm.adapters.mcp.upstream.shared_channel import SharedLink
from riglm.adapters.mcp.upstream.shared_process import SharedProcess
from riglm.domain.session import ProtocolEra
from riglm.domain.upstream import UpstreamHealth, UpstreamSpec
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamPort


class ChannelUpstream(UpstreamPort):
    """Gives each handshake client a channel, alone or with others of its principal; one to the modern era."""

    def __init__(self, spec: UpstreamSpec, timeout_seconds: UpstreamTimeouts) -> None:
        """An upstream to which nothing is open yet."""
        self.spec = spec
        self._timeout_seconds = timeout_seconds
        self._eras: dict[ProtocolEra, bool] = {}
        self._links: dict[ChannelLink, str] = {}
        """The links that have a dedicated channel, with the principal of each."""
        self._shared: dict[SharedProcess, str] = {}
        """The shared processes, with the principal of each."""
        self._stateless: SharedLink | None = None
        self._condition = ChannelHealthTracker(spec.name)

    @abstractmethod
    async def open(self, receiver: Receiver, principal: str = "") -> MessageChannel:
        """Open a channel for the handshake era, for a client of this principal.

        Raises:
            UpstreamUnavailableError: it cannot be opened.
        """

    async def open_stateless(self, receiver: Receiver) -> MessageChannel:
        """Open a channel for the modern era.

        Raises:
            UpstreamUnavailableError: it cannot be opened.
        """
        return await self.open(receiver)

    def has_room(self, principal: str) -> bool:
        """True if one more client connection of the principal may have a dedicated channel."""
        return self.spec.sharing != "shared"

    def connect(self, message_handler: ServerMessageHandler, principal: str = "") -> UpstreamLink:
        if not self.has_room(principal):
            return self._shared_process(principal).attach(message_handler)
        opener = partial(self.open, principal=principal)
        link = ChannelLink(self.spec, opener, message_handler, self._timeout_seconds, self._released, self._condition)
        self._links[link] = principal
        return link

    def stateless(self, message_handler: ServerMessageHandler) -> UpstreamLink:
        if self._stateless is None:
            self._stateless = SharedLink(
                self.spec, self.open_stateless, message_handler, self._timeout_seconds, self._condition
            )
        return self._stateless

    def supports(self, era: ProtocolEra) -> bool | None:
        return self._eras.get(era)

    def learned(self, era: ProtocolEra, *, supported: bool) -> None:
        self._eras[era] = supported

    def health(self) -> UpstreamHealth:
        return self._condition.health

    @property
    def channel_links(self) -> list[ReconnectingLink]:
        """The links that have a channel each."""
        return [*self._links, *self._shared, *([self._stateless] if self._stateless else [])]

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self.channel_links), return_exceptions=True)

    def _shared_process(self, principal: str) -> SharedProcess:
        for shared, owner in self._shared.items():
            if owner == principal and not shared.is_closed:
                return shared
        opener = partial(self.open, principal=principal)
        shared = SharedProcess(self.spec, opener, self._timeout_seconds, self._emptied, self._condition)
        self._shared[shared] = principal
        return shared

    def _released(self, link: ChannelLink) -> None:
        self._links.pop(link, None)

    async def _emptied(self, shared: SharedProcess) -> None:
        """If sharing was configured, the process outlives its clients; otherwise it only replaced missing capacity."""
        if self.spec.sharing != "shared":
            await shared.close()
            self._shared.pop(shared, None)
