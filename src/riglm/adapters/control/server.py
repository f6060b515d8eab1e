"""Serves the control API on a separate thread and event loop, so that it delays no call."""

import asyncio
import contextlib
import gc
import logging
import socket
import threading
from collections.abc import Callable
from typing import Final

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

ANSWER_SECONDS: Final = 60.0
"""Maximum seconds from one response to the end of the next before a connection is closed."""

MAX_HEAD_BYTES: Final = 1 << 15
"""Maximum size of a request's line and headers."""

MAX_CONNECTIONS: Final = 64
"""Maximum number of connections. For one more, the idlest is closed; while all are busy, the new one gets a 503."""

_KEEP_ALIVE_SECONDS: Final = 20
_GRACE_SECONDS: Final = 0.4
_END_SECONDS: Final = 0.8

_log: Final = logging.getLogger("riglm.control")


class ControlServer(uvicorn.Server):
    """The server of one listener. Its application is built on the thread, so that imports delay no client.

    At the end it cuts off what is in flight after a moment.
    """

    def __init__(self, listener: socket.socket, build: Callable[[], ASGIApp]) -> None:
        """`listener` is bound already, and closed at the end."""
        self._listener = listener
        self._build = build
        super().__init__(
            uvicorn.Config(
                self._create_app,
                factory=True,
                loop="asyncio",
                lifespan="off",
                ws="none",
                http=BoundedH11Protocol,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                proxy_headers=False,  # an address that a peer claims is no evidence
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            )
        )
        self._thread = threading.Thread(target=self._serve_listener, name="riglm-control", daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    async def stop(self) -> None:
        """End within a second; requests in flight are cut off."""
        self.should_exit = True
        await asyncio.to_thread(self._thread.join, _END_SECONDS)

    def _serve_listener(self) -> None:
        try:
            self.run([self._listener])
        except Exception:  # noqa: BLE001  # the proxy is not to feel it
            _log.exception("the control API ended; riglm goes on without it")
        finally:
            self._listener.close()

    def _create_app(self) -> ASGIApp:
        app = self._build()
        gc.freeze()  # what was made for it lives to the end: the collector, which holds up calls, need not walk it
        host, port, *_ = self._listener.getsockname()
        _log.info("control API", extra={"url": f"http://{f'[{host}]' if ':' in host else host}:{port}/"})
        return app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait a moment for responses; the event loop cancels what is left."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # lets each notice that its response is not needed any more


class BoundedH11Protocol(H11Protocol):
    """A connection that is closed if it gets no response for a long time, or if it is idle and there are too many."""

    _timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a response, and close the idlest connection if there are too many."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)
        if len(self.connections) <= MAX_CONNECTIONS:
            return
        others = [each for each in self.connections if isinstance(each, BoundedH11Protocol) and each is not self]
        idle = [each for each in others if each.cycle is None or each.cycle.response_complete]
        if not idle:
            self.app = _refuse_busy
            return
        idlest = min(idle, key=lambda each: each._timer.when())  # noqa: SLF001  # same class
        self.connections.discard(idlest)
        idlest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Expect the next response."""
        self._timer.cancel()
        self._timer = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)
        super().on_response_complete()


async def _refuse_busy(scope: Scope, receive: Receive, send: Send) -> None:
    from riglm.adapters.control.routes import create_problem  # noqa: PLC0415  # the thread has imported it

    headers = {"Retry-After": "2", "Connection": "close"}
    await create_problem(503, "all connections are busy: ask again later", headers=headers)(scope, receive, send)
