"""An upstream that is a child process."""

import asyncio
from collections.abc import Callable

from riglm.adapters.mcp.upstream.channel_link import ChannelLink
from riglm.adapters.mcp.upstream.deadlines import Patience
from riglm.adapters.mcp.upstream.process import Channel, Child, Guardian
from riglm.adapters.mcp.upstream.shared_link import SharedLink
from riglm.domain.session import Era
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import Outlet, UpstreamLink, UpstreamPort


class StdioUpstream(UpstreamPort):
    """Starts a process for each client connection of the handshake era, and one for all of the modern era."""

    def __init__(self, spec: UpstreamSpec, *, guardian: Guardian, patience: Patience, limit: int) -> None:
        """An upstream whose processes are watched by `guardian`; `limit` is the longest message in bytes."""
        self.spec = spec
        self._guardian = guardian
        self._patience = patience
        self._limit = limit
        self._eras: dict[Era, bool] = {}
        self._links: set[ChannelLink] = set()
        self._stateless: SharedLink | None = None

    def connect(self, outlet: Outlet) -> UpstreamLink:
        """A link with a process of its own."""
        link = ChannelLink(self.spec, self._open, outlet, self._patience, self._links.discard)
        self._links.add(link)
        return link

    def stateless(self, outlet: Outlet) -> UpstreamLink:
        """The link that all requests of the modern era share."""
        if self._stateless is None:
            self._stateless = SharedLink(self.spec, self._open, outlet, self._patience)
        return self._stateless

    def supports(self, era: Era) -> bool | None:
        """Whether the server speaks this era."""
        return self._eras.get(era)

    def learned(self, era: Era, *, supported: bool) -> None:
        """Remember an era."""
        self._eras[era] = supported

    async def close(self) -> None:
        """End every process."""
        links: list[UpstreamLink] = [*self._links, *([self._stateless] if self._stateless else [])]
        await asyncio.gather(*(link.close() for link in links), return_exceptions=True)

    async def _open(self, on_line: Callable[[bytes], None], on_exit: Callable[[str], None]) -> Channel:
        child = Child(
            self.spec,
            self._guardian,
            limit=self._limit,
            grace=self._patience.shutdown,
            on_line=on_line,
            on_exit=on_exit,
        )
        await child.start()
        return child
