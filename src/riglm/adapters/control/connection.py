"""uvicorn, with bounds for peers that dawdle, talk too much, or are too many."""

import asyncio
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

ANSWER_SECONDS: Final = 60.0
"""From one answer to the end of the next no more seconds may pass, or the connection is broken: whoever sends or reads
slowly, or does nothing at all, keeps none.
"""

LONGEST_HEAD: Final = 1 << 15
"""The most bytes of a request's line and headers."""

MOST_CONNECTIONS: Final = 64
"""What is more is answered with 503."""

_KEEP_ALIVE_SECONDS: Final = 20


class Connection(H11Protocol):
    """One client's connection."""

    _timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect an answer to have gone out before long."""
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Expect the next one."""
        self._timer.cancel()
        self._expect()
        super().on_response_complete()

    def _expect(self) -> None:
        self._timer = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)


def http_server(app: ASGIApp) -> uvicorn.Server:
    """A server for an application."""
    config = uvicorn.Config(
        app,
        loop="none",
        lifespan="off",
        ws="none",
        http=Connection,
        h11_max_incomplete_event_size=LONGEST_HEAD,
        limit_concurrency=MOST_CONNECTIONS,
        proxy_headers=False,  # the address that a peer claims for somebody else is no evidence
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    return uvicorn.Server(config)
