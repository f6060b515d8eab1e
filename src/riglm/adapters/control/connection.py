"""uvicorn, with bounds for peers that dawdle, talk too much, or are too many."""

import asyncio
import contextlib
from typing import Final

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from riglm.adapters.control.problem import problem

ANSWER_SECONDS: Final = 60.0
"""Maximum seconds from one response to the end of the next before the connection is closed: a peer that sends or reads
slowly, or does nothing at all, keeps none.
"""

HEAD_SECONDS: Final = 5.0
"""Seconds within which a new connection must send a request, and a started request must be complete."""

LONGEST_HEAD: Final = 1 << 15
"""The most bytes of a request's line and headers."""

MOST_CONNECTIONS: Final = 64
"""Maximum number of connections. For one more, the idlest is closed; while all are busy, the new one gets a 503."""

_KEEP_ALIVE_SECONDS: Final = 20
_RETRY_SECONDS: Final = "2"


class Connection(H11Protocol):
    """One client's connection."""

    _timer: asyncio.TimerHandle
    _head_timer: asyncio.TimerHandle | None = None
    _quiet_since: float

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request soon, and its response to be sent soon."""
        super().connection_made(transport)
        self._quiet_since = self.loop.time()
        self._expect()
        self._expect_head()
        if len(self.connections) > MOST_CONNECTIONS and not self._made_room():
            self.app = _busy

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._timer.cancel()
        self._expect_no_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Expect the rest of a request soon that was begun."""
        super().data_received(data)
        if not self.is_quiet:
            self._expect_no_head()
        elif self._head_timer is None:
            self._expect_head()

    def on_response_complete(self) -> None:
        """Expect the next one."""
        self._timer.cancel()
        self._expect()
        self._quiet_since = self.loop.time()
        super().on_response_complete()

    @property
    def is_quiet(self) -> bool:
        """Whether no request waits for its answer."""
        return self.cycle is None or self.cycle.response_complete

    def _made_room(self) -> bool:
        """Break the connection that asked nothing for the longest time; False when all others are busy."""
        others = [each for each in self.connections if isinstance(each, Connection) and each is not self]
        quiet = [each for each in others if each.is_quiet]
        if quiet:
            longest = min(quiet, key=lambda each: each._quiet_since)  # noqa: SLF001  # same class
            self.connections.discard(longest)
            longest.transport.abort()
        return bool(quiet)

    def _expect(self) -> None:
        self._timer = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _expect_no_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def http_server(app: ASGIApp) -> uvicorn.Server:
    """A server for an application."""
    config = uvicorn.Config(
        _cut_off_quietly(app),
        loop="none",
        lifespan="off",
        ws="none",
        http=Connection,
        h11_max_incomplete_event_size=LONGEST_HEAD,
        proxy_headers=False,  # an address that a peer claims is no evidence
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    return uvicorn.Server(config)


def _cut_off_quietly(app: ASGIApp) -> ASGIApp:
    """The application; a request that is cut off by the server's end is not logged as an error."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await app(scope, receive, send)

    return answer


async def _busy(scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"Retry-After": _RETRY_SECONDS, "Connection": "close"}
    await problem(503, "all connections are busy: ask again later", headers=headers)(scope, receive, send)
