"""A small HTTP/1.1 client: callbacks, a keep-alive pool, one write a request.

It knows what MCP needs and no more: no redirects, no cookies, no compression, no HTTP/2.
`docs/discussions/http-client.md` explains why it exists.
"""

import asyncio
import functools
import os
import ssl
from collections.abc import Callable, Mapping
from typing import NamedTuple

from riglm.adapters.mcp.wire.dialing import Dialer
from riglm.adapters.mcp.wire.exchange import Exchange
from riglm.adapters.mcp.wire.pool import Pool
from riglm.adapters.mcp.wire.proxy_environment import proxy_for
from riglm.adapters.mcp.wire.response import Headers, HttpFailure, ResponseSink
from riglm.adapters.mcp.wire.target import Target
from riglm.domain.errors import ConfigurationError

__all__ = ["Exchange", "Headers", "HttpClient", "HttpFailure", "ResponseSink", "Target"]


class HttpClient:
    """Sends requests for a whole process, over as few connections as it can.

    Nothing is opened before the first `send`, and all calls belong to one event loop. There is no deadline for an
    answer: that is the caller's, by `Exchange.abort`.

    Args:
        connect_timeout: seconds for a connection to be there: address, refusals, proxy and TLS together.
        ssl_context: makes the TLS context, once, in a thread, when it is first needed.
        max_idle_per_target: the most connections kept open to one origin without a request on them.
        idle_seconds: how long these are kept.
        max_header_bytes: the most bytes of an answer's head.
        environment: where HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY are looked up, once for each origin.
    """

    def __init__(
        self,
        *,
        connect_timeout: float = 10.0,
        ssl_context: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        max_idle_per_target: int = 256,
        idle_seconds: float = 30.0,
        max_header_bytes: int = 65_536,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._dialer = Dialer(connect_timeout=connect_timeout, ssl_context=ssl_context)
        self._new_pool = functools.partial(
            Pool, max_idle=max_idle_per_target, idle_seconds=idle_seconds, max_header_bytes=max_header_bytes
        )
        self._environment = environment
        self._routes: dict[str, _Route] = {}
        self._closed = False

    def send(self, target: Target, method: bytes, header_block: bytes, body: bytes, sink: ResponseSink) -> Exchange:
        """Send one request; its answer goes to the sink, and never before this method returned.

        Args:
            target: where to.
            method: in upper case; `HEAD` and `CONNECT` are not for this client.
            header_block: header lines, each with its CRLF, without Host, Accept-Encoding, Connection, Content-Length
                and Transfer-Encoding. An Authorization here wins over the target's own.
            body: the whole of it, or nothing.
            sink: receives the response.

        Raises:
            ValueError: the header block is not one: a value with a line ending in it would end the head early.
        """
        if header_block and (not header_block.endswith(b"\r\n") or b"\r\n\r\n" in header_block):
            raise ValueError("A header block is made of whole lines, each ended by CRLF, none of them empty")
        route = self._routes.get(target.origin)
        if route is None:
            try:
                route = self._open_route(target)
            except ConfigurationError as error:
                exchange = Exchange(b"", sink, target)
                _Refusal(exchange, str(error))
                return exchange
        exchange = Exchange(_request(route, target, method, header_block, body), sink, target)
        route.pool.submit(exchange)
        return exchange

    async def close(self) -> None:
        """Close every connection; exchanges in flight fail, and so do later ones."""
        self._closed = True
        routes, self._routes = self._routes, {}
        await asyncio.gather(*(route.pool.close() for route in routes.values()))

    def _open_route(self, target: Target) -> "_Route":
        if self._closed:
            raise ConfigurationError("The HTTP client is closed")
        proxy = proxy_for(target, self._environment)
        route = _Route(
            self._new_pool(functools.partial(self._dialer.connect, target, proxy)), None if target.tls else proxy
        )
        self._routes[target.origin] = route
        return route


class _Route(NamedTuple):
    """How requests to one origin travel."""

    pool: Pool
    forwarder: Target | None
    """The proxy that reads the requests themselves; https goes through a tunnel."""


class _Refusal:
    """Holds an exchange that has failed before it began until its sink can be notified."""

    def __init__(self, exchange: Exchange, reason: str) -> None:
        exchange.holder = self
        failure = HttpFailure(f"{exchange.place}: {reason}", sent=False)
        self._news = asyncio.get_running_loop().call_soon(exchange.fail, failure)

    def abandon(self, exchange: Exchange) -> None:
        self._news.cancel()

    def flow(self, exchange: Exchange) -> None:
        """There is nothing to read."""


def _request(route: _Route, target: Target, method: bytes, header_block: bytes, body: bytes) -> bytes:
    start = target.origin_form
    if route.forwarder is not None:
        start = target.absolute_form
        if route.forwarder.authorization:
            start += b"Proxy-" + route.forwarder.authorization
    if target.authorization and b"\r\nauthorization:" not in b"\r\n" + header_block.lower():
        start += target.authorization
    if body or method in {b"POST", b"PUT", b"PATCH"}:
        return b"%b%b%bContent-Length: %d\r\n\r\n%b" % (method, start, header_block, len(body), body)
    return b"%b%b%b\r\n" % (method, start, header_block)
