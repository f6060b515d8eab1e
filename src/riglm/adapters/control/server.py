"""Serves the control API on a thread and an event loop of its own, where it holds up no call and breaks nothing."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

ANSWER_SECONDS: Final = 30.0
"""From one answer to the end of the next no more seconds may pass, or the connection is broken: whoever sends or reads
slowly, or does nothing at all, keeps none.
"""

LONGEST_HEAD: Final = 1 << 15
"""The most bytes of a request's line and headers."""

MOST_CONNECTIONS: Final = 64
"""What is more is answered with 503."""

_KEEP_ALIVE_SECONDS: Final = 20
_GRACE_SECONDS: Final = 0.4
_END_SECONDS: Final = 0.8

_log: Final = logging.getLogger("riglm.control")


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


class ControlServer:
    """One listener's server.

    The application is built on the thread, so that what it imports delays no client of the proxy.
    """

    _loop: asyncio.AbstractEventLoop

    def __init__(self, listener: socket.socket, build: Callable[[], ASGIApp]) -> None:
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
        """End within a second, whatever is going on; what is not answered by then is cut off."""
        if self._thread.is_alive():
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
        server = uvicorn.Server(_config(self._build()))
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
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_GRACE_SECONDS / 2)


def _config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
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
