"""A server over Streamable HTTP, in either era."""

import asyncio
from collections.abc import Callable

from riglm.adapters.mcp.upstream.deadlines import Deadlines
from riglm.adapters.mcp.upstream.health import RequestHealthTracker
from riglm.adapters.mcp.upstream.http_handshake_link import HandshakeHttpLink
from riglm.adapters.mcp.upstream.http_link import HttpEndpoint, HttpLink, ModernHttpLink
from riglm.adapters.mcp.upstream.http_post import PostRequest
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw
from riglm.domain.protocol import TOOLS_CHANGED
from riglm.domain.session import ProtocolEra
from riglm.domain.upstream import UpstreamHealth
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamPort


class HttpUpstream(UpstreamPort):
    """All links share one client and its connections."""

    def __init__(self, place: HttpEndpoint, input_schema: Callable[[str, str], Raw | None]) -> None:
        """Create an upstream; `input_schema` returns the schema of a tool as last listed, by upstream and tool."""
        self.spec = place.spec
        self.place = place
        self.input_schema = input_schema
        self.headers = place.headers
        """The header block that every POST starts with."""
        self.posts: dict[int, PostRequest] = {}
        """The requests in flight over all links, by the `id()` of their reply."""
        self.deadlines = Deadlines(place.spec.name, place.timeout_seconds, self.posts.values(), self._before_expiry)
        self.condition = RequestHealthTracker(place.spec.name)
        self._eras: dict[ProtocolEra, bool] = {}
        self._links: set[HttpLink] = set()
        self._stateless: ModernHttpLink | None = None

    def connect(self, message_handler: ServerMessageHandler, principal: str = "") -> UpstreamLink:
        link = HandshakeHttpLink(self, message_handler)
        self._links.add(link)
        return link

    def stateless(self, message_handler: ServerMessageHandler) -> UpstreamLink:
        if self._stateless is None:
            self._stateless = ModernHttpLink(self, message_handler)
        return self._stateless

    def supports(self, era: ProtocolEra) -> bool | None:
        return self._eras.get(era)

    def learned(self, era: ProtocolEra, *, supported: bool) -> None:
        self._eras[era] = supported

    def health(self) -> UpstreamHealth:
        return self.condition.health

    def unreachable(self, reason: str) -> None:
        """Forget the eras: the server may return as a different one."""
        self._eras.clear()
        self.condition.failed(reason)

    def closed(self, link: HttpLink) -> None:
        """Forget a link."""
        self._links.discard(link)

    def announce_changed_tools(self) -> None:
        for link in list(self._links):
            link.receive(jsonrpc.notification(TOOLS_CHANGED))

    async def close(self) -> None:
        links: list[UpstreamLink] = [*self._links, *([self._stateless] if self._stateless else [])]
        await asyncio.gather(*(link.close() for link in links), return_exceptions=True)
        self.deadlines.close()

    def _before_expiry(self, post: PostRequest) -> None:
        del self.posts[id(post.reply)]
        post.owner.before_expiry(post)
