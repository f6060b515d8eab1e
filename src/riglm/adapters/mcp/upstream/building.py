"""Makes upstreams from their specifications, with what they share."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from riglm.adapters.mcp.upstream.deadlines import Patience
from riglm.adapters.mcp.upstream.guardian import Guardian
from riglm.adapters.mcp.upstream.stdio import StdioUpstream
from riglm.domain.jsonrpc import Raw
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import UpstreamPort

if TYPE_CHECKING:
    from riglm.adapters.mcp.wire.http_client import HttpClient


class Timeouts(Protocol):
    """How long to wait for an upstream, in seconds, as configured."""

    connect: float
    initialize: float
    list: float
    call: float
    call_max: float
    shutdown: float


class Upstreams:
    """The servers behind one riglm process: they share an HTTP client and a guardian."""

    def __init__(self, specs: Sequence[UpstreamSpec], timeouts: Timeouts, limit: int) -> None:
        """Upstreams that are not opened yet; `limit` is the longest message in bytes."""
        self._specs = specs
        self._limit = limit
        self._patience = Patience(
            connect=timeouts.connect,
            initialize=timeouts.initialize,
            list=timeouts.list,
            call=timeouts.call,
            call_max=timeouts.call_max,
            shutdown=timeouts.shutdown,
        )

    @contextlib.asynccontextmanager
    async def opened(self, input_schema: Callable[[str, str], Raw | None]) -> AsyncIterator[tuple[UpstreamPort, ...]]:
        """Create the upstreams, in the order configured; everything they hold is released at the end."""
        guardian, client = Guardian(), None
        if any(spec.kind != "stdio" for spec in self._specs):  # a start without URLs does not wait for the import
            from riglm.adapters.mcp.wire.http_client import HttpClient  # noqa: PLC0415

            client = HttpClient(connect_timeout=self._patience.connect)
        try:
            yield tuple(
                StdioUpstream(spec, guardian=guardian, patience=self._patience, limit=self._limit)
                if client is None or spec.kind == "stdio"
                else self._remote(spec, client, input_schema)
                for spec in self._specs
            )
        finally:
            if client is not None:
                await client.close()
            guardian.close()

    def _remote(
        self, spec: UpstreamSpec, client: "HttpClient", input_schema: Callable[[str, str], Raw | None]
    ) -> UpstreamPort:
        from riglm.adapters.mcp.upstream.http import HttpUpstream  # noqa: PLC0415
        from riglm.adapters.mcp.upstream.http_link import HttpPlace  # noqa: PLC0415
        from riglm.adapters.mcp.upstream.sse import SseUpstream  # noqa: PLC0415
        from riglm.adapters.mcp.wire.http_client import Target  # noqa: PLC0415

        place = HttpPlace(spec=spec, client=client, target=Target(spec.url), patience=self._patience, limit=self._limit)
        return SseUpstream(place) if spec.kind == "sse" else HttpUpstream(place, input_schema)
