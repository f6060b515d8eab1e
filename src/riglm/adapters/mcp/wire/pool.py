"""The connections to one origin, and the requests that wait for one."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from riglm.adapters.mcp.wire.exchange import Exchange
from riglm.adapters.mcp.wire.http_connection import Connection
from riglm.adapters.mcp.wire.response import HttpFailure

MAX_DIALS = 64
"""Connections being opened at the same time; more would overflow a server's backlog, and wait for seconds."""


class Pool:
    """Keeps connections alive between requests: the one used last is used next.

    There is no bound on connections in use, because an event stream holds one for as long as it lives. A request that
    finds none free waits for a new one or for the first that becomes free, whichever is sooner.

    Args:
        dial: opens a connection for the given protocol, or raises HttpFailure.
        max_idle: the most connections kept without a request on them.
        idle_seconds: how long each of these is kept.
        max_header_bytes: what `Connection` wants to know.
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
        self._idle: deque[Connection] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._waiting: deque[Exchange] = deque()
        self._waited = 0
        self._dials: set[asyncio.Task[None]] = set()
        self._open: set[Connection] = set()
        self._all_lost = asyncio.Event()

    def submit(self, exchange: Exchange) -> None:
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

    def abandon(self, exchange: Exchange) -> None:
        """Forget an exchange that waits; the connection being opened for it will serve another."""
        self._waiting.remove(exchange)

    def flow(self, exchange: Exchange) -> None:
        """Nothing is read for an exchange that waits."""

    def free(self, connection: Connection) -> None:
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

    def lost(self, connection: Connection) -> None:
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
        connection = Connection(self, self._max_header_bytes)
        failure = await self._failure_to_open(connection)
        self._dials.discard(cast("asyncio.Task[None]", asyncio.current_task()))
        if failure is None:
            self._open.add(connection)
            self.free(connection)
        else:
            self._give_up(failure, asked)
        self._dial_more()

    async def _failure_to_open(self, connection: Connection) -> Exception | None:
        try:
            await self._dial(connection)
        except Exception as error:  # noqa: BLE001 - any failure of a resolver or a TLS context fails those that wait
            return error
        return None if connection.usable else ConnectionError("The server closed the connection as soon as it was open")

    def _give_up(self, cause: Exception, last: int) -> None:
        """Fail those who were waiting already when an attempt began that has failed."""
        while self._waiting and self._waiting[0].number <= last:
            exchange = self._waiting.popleft()
            message = str(cause) if isinstance(cause, HttpFailure) else f"{exchange.place}: {cause}"
            failure = HttpFailure(message, sent=False)
            failure.__cause__ = cause
            exchange.fail(failure)

    def _drop_old(self) -> None:
        oldest = self._loop.time() - self._idle_seconds
        while self._idle and self._idle[0].free_since <= oldest:
            self._idle.popleft().close("was idle for too long")
        self._sweep = None
        if self._idle:
            self._sweep = self._loop.call_at(self._idle[0].free_since + self._idle_seconds, self._drop_old)
