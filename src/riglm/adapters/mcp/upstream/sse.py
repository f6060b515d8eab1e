"""An upstream over the older HTTP+SSE transport, which knows the handshake era alone."""

from riglm.adapters.mcp.upstream.channel import Channel, Receiver
from riglm.adapters.mcp.upstream.channel_upstream import ChannelUpstream
from riglm.adapters.mcp.upstream.http_link import HttpPlace
from riglm.adapters.mcp.upstream.sse_channel import SseChannel
from riglm.domain.session import Era


class SseUpstream(ChannelUpstream):
    """Opens an event stream for each client connection, or one for all where `sharing` is `shared`."""

    def __init__(self, place: HttpPlace) -> None:
        """An upstream at `place`."""
        super().__init__(place.spec, place.patience)
        self._place = place

    async def open(self, receiver: Receiver) -> Channel:
        """Open an event stream."""
        channel = SseChannel(self._place, receiver)
        await channel.open()
        return channel

    def supports(self, era: Era) -> bool | None:
        """The transport was removed before the modern era began."""
        return era is Era.HANDSHAKE
