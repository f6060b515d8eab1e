"""An upstream over Streamable HTTP."""

import asyncio
from collections.abc import Callable

from riglm.adapters.mcp.upstream.condition import RequestsCondition
from riglm.adapters.mcp.upstream.deadlines import Deadlines
from riglm.adapters.mcp.upstream.http_handshake import HandshakeHttpLink
from riglm.adapters.mcp.upstream.http_link import HttpLink, HttpPlace
from riglm.adapters.mcp.upstream.http_modern import ModernHttpLink
from riglm.domain.jsonrpc import Raw
from riglm.domain.session import Era
from riglm.domain.upstream import UpstreamHealth
from riglm.ports.upstream import Outlet, UpstreamLink, UpstreamPort


class HttpUpstream(UpstreamPort):
    """All links share one client and its connections."""

    def __init__(self, place: HttpPlace, input_schema: Callable[[str, str], Raw | None]) -> None:
        """An upstream at `place`; `input_schema` as in `ModernHttpLink`."""
        self.spec = place.spec
        self.place = place
        self.headers = place.headers
        self.deadlines = Deadlines(place.spec.name, place.patience)
        self._input_schema = input_schema
        self._eras: dict[Era, bool] = {}
        self._links: set[HttpLink] = set()
        self._stateless: ModernHttpLink | None = None
        self.condition = RequestsCondition(place.spec.name)

    def connect(self, outlet: Outlet) -> UpstreamLink:
        """Return a link with a separate session."""
        link = HandshakeHttpLink(self, outlet)
        self._links.add(link)
        return link

    def stateless(self, outlet: Outlet) -> UpstreamLink:
        """The link that all requests of the modern era share."""
        if self._stateless is None:
            self._stateless = ModernHttpLink(self, outlet, self._input_schema)
        return self._stateless

    def supports(self, era: Era) -> bool | None:
        """True if the server supports this era."""
        return self._eras.get(era)

    def learned(self, era: Era, *, supported: bool) -> None:
        """Remember an era."""
        self._eras[era] = supported

    def health(self) -> UpstreamHealth:
        """The condition of the server."""
        return self.condition.health

    def unreachable(self, reason: str) -> None:
        """Forget the eras: the server may return as a different one."""
        self._eras.clear()
        self.condition.failed(reason)

    def closed(self, link: HttpLink) -> None:
        """Forget a link."""
        self._links.discard(link)

    async def close(self) -> None:
        """End all sessions."""
        links: list[UpstreamLink] = [*self._links, *([self._stateless] if self._stateless else [])]
        await asyncio.gather(*(link.close() for link in links), return_exceptions=True)
        self.deadlines.close()
