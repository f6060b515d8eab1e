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

from riglm.adapters.control.problems import create_problem

_GRACE_SECONDS: Final = 0.4
_END_SECONDS: Final = 0.8

_log: Final = logging.getLogger("riglm.control")


class ControlServer:
    """One listener's server.

    The application is built on the thread, so that what it imports delays no client of the proxy.
    """

    _loop: asyncio.AbstractEventLoop

    def __init__(self, listener: socket.socket, build: Callable[[], "ASGIApp"]) -> None:
        """`listener` is bound already, and closed at the end."""
        self._listener = listener
        self._build = build
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="riglm-control", daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    async def stop(self) -> None:
        """End within a second; requests in flight are cut off."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # it has ended by itself just now
                self._loop.call_soon_threadsafe(self._stop.set)
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join, _END_SECONDS)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except Exception:  # noqa: BLE001  # the proxy is not to feel it
            _log.exception("the control API ended; riglm goes on without it")
        finally:
            self._listener.close()
            self._loop.close()

    async def _serve(self) -> None:
        server = http_server(self._build())
        gc.freeze()  # what was made for it lives to the end: the collector, which holds up calls, need not walk it
        host, port, *_ = self._listener.getsockname()
        _log.info("control API", extra={"url": f"http://{f'[{host}]' if ':' in host else host}:{port}/"})
        serving = asyncio.create_task(server.serve([self._listener]))
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await asyncio.wait({serving}, timeout=_GRACE_SECONDS)
        if serving.done():
            serving.result()
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # lets each notice that its response is not needed any more
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_GRACE_SECONDS / 2)


ANSWER_SECONDS: Final = 60.0
"""Maximum seconds from one response to the end of the next before the connection is closed: a peer that sends or reads
slowly, or does nothing at all, keeps none.
"""

HEAD_SECONDS: Final = 5.0
"""Seconds within which a new connection must send a request, and a started request must be complete."""

MAX_HEAD_LENGTH: Final = 1 << 15
"""The most bytes of a request's line and headers."""

MAX_CONNECTIONS: Final = 64
"""Maximum number of connections. For one more, the idlest is closed; while all are busy, the new one gets a 503."""

_KEEP_ALIVE_SECONDS: Final = 20
_RETRY_SECONDS: Final = "2"


class BoundedH11Protocol(H11Protocol):
    """One client's connection."""

    _timer: asyncio.TimerHandle
    _head_timer: asyncio.TimerHandle | None = None
    _quiet_since: float

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request soon, and its response to be sent soon."""
        super().connection_made(transport)
        self._quiet_since = self.loop.time()
        self._timer = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)
        if len(self.connections) > MAX_CONNECTIONS and not self._made_room():
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
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def on_response_complete(self) -> None:
        """Expect the next one."""
        self._timer.cancel()
        self._timer = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)
        self._quiet_since = self.loop.time()
        super().on_response_complete()

    @property
    def is_quiet(self) -> bool:
        """Whether no request waits for its answer."""
        return self.cycle is None or self.cycle.response_complete

    def _made_room(self) -> bool:
        """Break the connection that asked nothing for the longest time; False when all others are busy."""
        others = [each for each in self.connections if isinstance(each, BoundedH11Protocol) and each is not self]
        quiet = [each for each in others if each.is_quiet]
        if quiet:
            longest = min(quiet, key=lambda each: each._quiet_since)  # noqa: SLF001  # same class
            self.connections.discard(longest)
            longest.transport.abort()
        return bool(quiet)

    def _expect_no_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def http_server(app: ASGIApp) -> uvicorn.Server:
    """Return a server for an application. A request that is cut off when the server stops is not logged as an error."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await app(scope, receive, send)

    config = uvicorn.Config(
        answer,
        loop="none",
        lifespan="off",
        ws="none",
        http=BoundedH11Protocol,
        h11_max_incomplete_event_size=MAX_HEAD_LENGTH,
        proxy_headers=False,  # an address that a peer claims is no evidence
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    return uvicorn.Server(config)


async def _busy(scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"Retry-After": _RETRY_SECONDS, "Connection": "close"}
    await create_problem(503, "all connections are busy: ask again later", headers=headers)(scope, receive, send)
