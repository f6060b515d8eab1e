"""Makes upstreams from their specifications, with what they share."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from riglm.adapters.mcp.upstream.deadlines import UpstreamTimeouts
from riglm.adapters.mcp.upstream.process import ProcessReaper
from riglm.adapters.mcp.upstream.stdio_upstream import StdioUpstream
from riglm.domain.jsonrpc import Raw
from riglm.domain.schemas.section import TimeoutSettings
from riglm.domain.session import ProtocolEra
from riglm.domain.upstream import UpstreamHealth, UpstreamSpec
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamPort

if TYPE_CHECKING:
    from riglm.adapters.mcp.oauth.accounts import AccountFile
    from riglm.adapters.mcp.oauth.signed_in_client import SignedInClient
    from riglm.adapters.mcp.wire.http_client import HttpClient


class Upstreams:
    """The servers behind one riglm process: they share an HTTP client and a guardian."""

    def __init__(
        self,
        specs: Sequence[UpstreamSpec],
        timeouts: TimeoutSettings,
        limit: int,
        accounts: "Callable[[], AccountFile] | None" = None,
    ) -> None:
        """Upstreams that are not opened yet; `limit` is the longest message in bytes.

        `accounts` returns the accounts of servers without configured credentials.
        """
        self._specs = specs
        self._accounts = accounts
        self._signed_in: list[SignedInClient] = []
        self._limit = limit
        self._reaper = ProcessReaper()
        self._early: StdioUpstream | None = None
        self._timeout_seconds = UpstreamTimeouts(**timeouts.model_dump(exclude={"grace"}))

    async def start_early(self) -> None:
        """Start the process of the only server, so that it gets ready while riglm does."""
        if [spec.kind for spec in self._specs] == ["stdio"]:
            self._early = self._local(self._specs[0])
            await self._early.start_early()

    def close(self) -> None:
        """End the processes that nothing else has ended."""
        self._reaper.close()

    @contextlib.asynccontextmanager
    async def opened(self, input_schema: Callable[[str, str], Raw | None]) -> AsyncIterator[tuple[UpstreamPort, ...]]:
        """Create the upstreams, in the order configured; everything they hold is released at the end."""
        client = None
        if any(spec.kind != "stdio" for spec in self._specs):  # a start without URLs does not wait for the import
            from riglm.adapters.mcp.wire.http_client import HttpClient  # noqa: PLC0415

            client = HttpClient(connect_timeout=self._timeout_seconds.connect)
        try:
            yield tuple(
                self._early or self._local(spec)
                if client is None or spec.kind == "stdio"
                else PerCallerUpstream(spec, partial(self._remote, client=client, input_schema=input_schema))
                if spec.oauth.is_per_caller
                else self._remote(spec, client, input_schema)
                for spec in self._specs
            )
        finally:
            for signed_in in self._signed_in:
                signed_in.close()
            if client is not None:
                await client.close()
            self.close()

    def _local(self, spec: UpstreamSpec) -> StdioUpstream:
        return StdioUpstream(spec, reaper=self._reaper, timeout_seconds=self._timeouts_for(spec), limit=self._limit)

    def _timeouts_for(self, spec: UpstreamSpec) -> UpstreamTimeouts:
        changed: dict[str, Any] = dict(spec.timeouts)
        found = replace(self._timeout_seconds, **changed)
        return replace(found, call_max=max(found.call, found.call_max))

    def _remote(
        self, spec: UpstreamSpec, client: "HttpClient", input_schema: Callable[[str, str], Raw | None]
    ) -> UpstreamPort:
        from riglm.adapters.mcp.upstream.http_link import HttpEndpoint  # noqa: PLC0415
        from riglm.adapters.mcp.upstream.http_upstream import HttpUpstream  # noqa: PLC0415
        from riglm.adapters.mcp.upstream.sse_upstream import SseUpstream  # noqa: PLC0415
        from riglm.adapters.mcp.wire.http_client import Target  # noqa: PLC0415

        sender: HttpClient | SignedInClient = client
        if self._accounts is not None and not spec.has_credentials:
            from riglm.adapters.mcp.oauth import signed_in_client  # noqa: PLC0415

            sender = signed_in_client.SignedInClient(client, self._accounts(), spec)
            self._signed_in.append(sender)
        place = HttpEndpoint(
            spec=spec,
            client=sender,
            target=Target(spec.url),
            timeout_seconds=self._timeouts_for(spec),
            limit=self._limit,
        )
        return SseUpstream(place) if spec.kind == "sse" else HttpUpstream(place, input_schema)


class PerCallerUpstream(UpstreamPort):
    """A server at which each caller has a separate account, and so separate links, catalogs and health."""

    def __init__(self, spec: UpstreamSpec, create: Callable[[UpstreamSpec], UpstreamPort]) -> None:
        """`create` returns the upstream of one principal."""
        self.spec = spec
        self._create = create
        self._upstreams: dict[str, UpstreamPort] = {}

    def for_principal(self, principal: str) -> UpstreamPort:
        upstream = self._upstreams.get(principal)
        if upstream is None:
            upstream = self._upstreams[principal] = self._create(replace(self.spec, principal=principal))
        return upstream

    def connect(self, message_handler: ServerMessageHandler, principal: str = "") -> UpstreamLink:
        return self.for_principal(principal).connect(message_handler, principal)

    def stateless(self, message_handler: ServerMessageHandler) -> UpstreamLink:
        return self.for_principal("").stateless(message_handler)

    def supports(self, era: ProtocolEra) -> bool | None:
        return self.for_principal("").supports(era)

    def learned(self, era: ProtocolEra, *, supported: bool) -> None:
        self.for_principal("").learned(era, supported=supported)

    def health(self) -> UpstreamHealth:
        """Return the latest condition of all callers' links."""
        found = [upstream.health() for upstream in list(self._upstreams.values())]
        return max(found, key=lambda each: each.since, default=UpstreamHealth(name=self.spec.name, state="idle"))

    def announce_changed_tools(self) -> None:
        for upstream in self._upstreams.values():
            upstream.announce_changed_tools()

    async def close(self) -> None:
        await asyncio.gather(*(upstream.close() for upstream in self._upstreams.values()))
