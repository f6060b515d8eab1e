"""Serves the control API on a separate thread and event loop, so that it delays no call."""

import asyncio
import contextlib
import gc
import logging
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # imported on the thread
    from starlette.types import ASGIApp

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
        from riglm.adapters.control.connection import http_server  # noqa: PLC0415  # imported on this thread

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
