"""A small HTTP/1.1 client: callbacks, a keep-alive pool, one write a request.

It knows what MCP needs and no more: redirects within an origin, no cookies, no compression, no HTTP/2.
`docs/discussions/http-client.md` explains why it exists.
"""

import asyncio
import functools
import os
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, cast

from riglm.adapters.mcp.wire.dialing import Dialer, create_ssl_context
from riglm.adapters.mcp.wire.exchange import HttpClientError, HttpExchange, HttpHeaders, HttpResponseSink
from riglm.adapters.mcp.wire.http_connection import HttpClientConnection
from riglm.adapters.mcp.wire.target import Target, proxy_for
from riglm.domain.errors import ConfigurationError

MAX_DIALS = 64
"""Connections being opened at the same time; more would overflow a server's backlog, and wait for seconds."""


MAX_REDIRECTS = 10
"""Maximum number of redirects that one request follows."""


class Pool:
    """Keeps connections alive between requests: the one used last is used next.

    There is no bound on connections in use, because an event stream holds one for as long as it lives. A request that
    finds none free waits for a new one or for the first that becomes free.

    Args:
        dial: opens a connection for the given protocol, or raises HttpClientError.
        max_idle: the most connections kept without a request on them.
        idle_seconds: how long each of these is kept.
        max_header_bytes: what `HttpClientConnection` wants to know.
    """

    def __init__(
        self,
        dial: Callable[[asyncio.Protocol], Awaitable[None]],
        *,
        max_idle: int,
        idle_seconds: float,
        max_header_bytes: int,
    ) -> None:
        self._dial = dial
        self._max_idle = max_idle
        self._idle_seconds = idle_seconds
        self._max_header_bytes = max_header_bytes
        self._loop = asyncio.get_running_loop()
        self._idle: deque[HttpClientConnection] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._waiting: deque[HttpExchange] = deque()
        self._waited = 0
        self._dials: set[asyncio.Task[None]] = set()
        self._open: set[HttpClientConnection] = set()
        self._all_lost = asyncio.Event()

    def submit(self, exchange: HttpExchange) -> None:
        """Send the request on a free connection, at once if there is one."""
        oldest = self._loop.time() - self._idle_seconds
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.free_since >= oldest:
                connection.start(exchange)
                return
            connection.close("was idle for too long")
        self._waited += 1
        exchange.number = self._waited
        exchange.holder = self
        self._waiting.append(exchange)
        self._dial_more()

    def abandon(self, exchange: HttpExchange) -> None:
        """Forget an exchange that waits; the connection being opened for it will serve another."""
        self._waiting.remove(exchange)

    def flow(self, exchange: HttpExchange) -> None:
        """Nothing is read for an exchange that waits."""

    def free(self, connection: HttpClientConnection) -> None:
        """Give the connection to the request that has waited longest, or keep it."""
        if self._waiting:
            connection.start(self._waiting.popleft())
            return
        connection.free_since = self._loop.time()
        self._idle.append(connection)
        if len(self._idle) > self._max_idle:
            self._idle.popleft().close("is one too many")
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._idle_seconds, self._drop_old)

    def lost(self, connection: HttpClientConnection) -> None:
        """Forget a connection that is closed."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if not self._open:
            self._all_lost.set()

    async def close(self) -> None:
        """Close every connection; exchanges in flight or waiting fail. Returns when all are closed."""
        for dial in self._dials:
            dial.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)
        if self._sweep is not None:
            self._sweep.cancel()
        self._give_up(ConnectionAbortedError("the HTTP client was closed"), self._waited)
        for connection in list(self._open):
            connection.close("was given up: the HTTP client was closed")
        if self._open:
            self._all_lost.clear()
            await self._all_lost.wait()

    def _dial_more(self) -> None:
        while len(self._dials) < min(len(self._waiting), MAX_DIALS):
            self._dials.add(self._loop.create_task(self._open_one()))

    async def _open_one(self) -> None:
        asked = self._waited
        connection = HttpClientConnection(self.free, self.lost, self._max_header_bytes)
        failure: Exception | None = None
        try:
            await self._dial(connection)
            if not connection.usable:
                failure = ConnectionError("The server closed the connection as soon as it was open")
        except Exception as error:  # noqa: BLE001 - any failure of a resolver or a TLS context fails those that wait
            failure = error
        self._dials.discard(cast("asyncio.Task[None]", asyncio.current_task()))
        if failure is None:
            self._open.add(connection)
            self.free(connection)
        else:
            self._give_up(failure, asked)
        self._dial_more()

    def _give_up(self, cause: Exception, last: int) -> None:
        """Fail those who were waiting already when an attempt began that has failed."""
        while self._waiting and self._waiting[0].number <= last:
            exchange = self._waiting.popleft()
            message = str(cause) if isinstance(cause, HttpClientError) else f"{exchange.place}: {cause}"
            failure = HttpClientError(message, sent=False)
            failure.__cause__ = cause
            failure.is_unreachable = True
            exchange.fail(failure)

    def _drop_old(self) -> None:
        oldest = self._loop.time() - self._idle_seconds
        while self._idle and self._idle[0].free_since <= oldest:
            self._idle.popleft().close("was idle for too long")
        self._sweep = None
        if self._idle:
            self._sweep = self._loop.call_at(self._idle[0].free_since + self._idle_seconds, self._drop_old)


__all__ = ["HttpClient", "HttpClientError", "HttpExchange", "HttpHeaders", "HttpResponseSink", "Target"]


class HttpClient:
    """Sends requests for a whole process, over as few connections as it can.

    Nothing is opened before the first `send`, and all calls belong to one event loop. There is no deadline for an
    answer: that is the caller's, by `HttpExchange.abort`.

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
        ssl_context: Callable[[], ssl.SSLContext] = create_ssl_context,
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

    def send(
        self,
        target: Target,
        method: bytes,
        header_block: bytes,
        body: bytes,
        sink: HttpResponseSink,
        exchange: HttpExchange | None = None,
    ) -> HttpExchange:
        """Send one request; its answer goes to the sink, and never before this method returned.

        Args:
            target: where to.
            method: in upper case; `HEAD` and `CONNECT` are not for this client.
            header_block: header lines, each with its CRLF, without Host, Accept-Encoding, Connection, Content-Length
                and Transfer-Encoding. An Authorization here wins over the target's own.
            body: the whole of it, or nothing.
            sink: receives the response.
            exchange: one of the same target that is over or has not begun, to be returned instead of a new one.

        Raises:
            ValueError: the header block is not one: a value with a line ending in it would end the head early.
        """
        if header_block and (not header_block.endswith(b"\r\n") or b"\r\n\r\n" in header_block):
            raise ValueError("A header block is made of whole lines, each ended by CRLF, none of them empty")
        if exchange is None:
            exchange = HttpExchange(b"", sink, target)
        else:
            exchange.sink = sink
        route = self._routes.get(target.origin)
        if route is None:
            try:
                route = self._open_route(target)
            except ConfigurationError as error:
                _Refusal(exchange, str(error))
                return exchange
        if exchange.place is target and target.moved:
            exchange.place = target.moved.get(method, target)
        exchange.before_refusal = functools.partial(self._follow, target, method, header_block, body)
        exchange.request = _request(route, cast("Target", exchange.place), method, header_block, body)
        route.pool.submit(exchange)
        return exchange

    def _follow(
        self,
        target: Target,
        method: bytes,
        header_block: bytes,
        body: bytes,
        exchange: HttpExchange,
        status: int,
        headers: HttpHeaders,
    ) -> None:
        """Follow a redirect within the origin; if `_REMEMBERED`, later requests of this method go there at once."""
        place = cast("Target", exchange.place)
        found, exchange.redirect = find_redirect(place, method, status, headers)
        if status in _MISSING and place is not target and not exchange.redirects:
            target.moved.pop(method, None)  # the redirect is no longer right
            found = target
        elif found is None or exchange.redirects >= MAX_REDIRECTS:
            target.moved.pop(method, None)
            return
        elif status in _REMEMBERED and place is target.moved.get(method, target):
            target.moved[method] = found
        exchange.redirects += 1
        exchange.place = found
        sink = exchange.sink
        exchange.sink = _RedirectSink(
            sink, lambda: self.send(target, method, header_block, body, sink, exchange=exchange)
        )

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


class _RedirectSink(HttpResponseSink):
    """Drops a redirect, and sends the request again when it is complete."""

    def __init__(self, sink: HttpResponseSink, send: Callable[[], object]) -> None:
        self._sink = sink
        self._send = send

    def head(self, status: int, headers: HttpHeaders) -> None:
        """Drop it."""

    def data(self, chunk: bytes) -> None:
        """Drop it."""

    def end(self) -> None:
        self._send()

    def failed(self, failure: HttpClientError) -> None:
        self._sink.failed(failure)


_REMEMBERED = frozenset({301, 307, 308})
"""Statuses of redirects that later requests of the connection follow in advance. 307 is temporary for HTTP, but servers
send it for `/mcp` to `/mcp/`, and every request would make two trips; a target that is missing later is forgotten."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MISSING = frozenset({404, 405, 410})


def find_redirect(place: Target, method: bytes, status: int, headers: HttpHeaders) -> tuple[Target | None, str]:
    """Return the target of a redirect to follow, if any, and what to add to an error about a redirect.

    A redirect is followed if it stays within the origin and the request keeps its method and content.
    """
    location = headers.get(b"location")
    if not location or status not in _REDIRECTS:
        return None, ""
    try:
        found = place.redirected(location)
    except ConfigurationError:
        return None, " and redirects to what is no URL"
    if place.tls and not found.tls:
        words = "which is not encrypted: set its https address as `url` of the upstream"
        return None, f" and redirects to {found}, {words}"
    if found.origin != place.origin:
        words = "which is another origin: if you trust it, set it as `url` of the upstream"
        return None, f" and redirects to {found}, {words}"
    if status in _KEEPS_METHOD.get(method, _REDIRECTS):
        return found, f" and redirects again and again, at last to {found}: correct the `url` of the upstream"
    return None, f" and redirects to {found}, where a request would lose its content: correct the `url` of the upstream"


_KEEPS_METHOD = {b"POST": frozenset({307, 308}), b"DELETE": _REDIRECTS - {303}}
"""Statuses that keep a method; GET is kept by all."""


class _Route(NamedTuple):
    """How requests to one origin travel."""

    pool: Pool
    forwarder: Target | None
    """The proxy that reads the requests themselves; https goes through a tunnel."""


class _Refusal:
    """Holds an exchange that has failed before it began until its sink can be notified."""

    def __init__(self, exchange: HttpExchange, reason: str) -> None:
        exchange.holder = self
        failure = HttpClientError(f"{exchange.place}: {reason}", sent=False)
        self._news = asyncio.get_running_loop().call_soon(exchange.fail, failure)

    def abandon(self, exchange: HttpExchange) -> None:
        self._news.cancel()

    def flow(self, exchange: HttpExchange) -> None:
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
