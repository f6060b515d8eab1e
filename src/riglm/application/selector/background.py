"""An event loop in a separate thread, for callers without one, or with one that must not block."""

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, TypeVar

from riglm.domain.errors import RiglmError

Opened = TypeVar("Opened")
Result = TypeVar("Result")

CLOSING_SECONDS: Final = 10.0
"""Seconds to wait for a clean end; the thread is a daemon and does not keep the process alive."""

_CLOSED: Final = "this ToolSelector is closed — fix: use it inside its `with` block, or create a new one"
_FORKED: Final = "this ToolSelector was made before the process was forked — fix: make one in each process"


class SelectorClosedError(RiglmError):
    """Raised when the selector is closed or belongs to another process; the message contains the fix."""


class BackgroundLoop(Generic[Opened]):
    """Opens, uses and closes a resource on an event loop in a thread. Usable from any thread.

    What is open when the process ends is closed then.
    """

    def __init__(self, open_it: Callable[[], AbstractAsyncContextManager[Opened]], name: str) -> None:
        """Nothing runs before it is first needed; `name` is the thread's."""
        self._open_it = open_it
        self._process = os.getpid()
        self._lock = threading.RLock()  # garbage may be collected while it is held, and what is found then ends here
        self._is_closed = False
        self._opened: Future[Opened] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def open(self) -> Future[Opened]:
        """Have it opened, if it is not; the future has what is open, or why it could not be opened.

        Raises:
            SelectorClosedError: it was closed, or the process was forked.
        """
        with self._lock:
            if self._process != os.getpid():
                raise SelectorClosedError(_FORKED)
            if self._is_closed:
                raise SelectorClosedError(_CLOSED)
            if self._thread.ident is None:
                self._thread.start()
                atexit.register(self.close)
        return self._opened

    @property
    def is_open(self) -> bool:
        """Whether it was opened, or is just being opened, and was not closed since."""
        return self._thread.ident is not None and not self._is_closed

    def ask(self, work: Callable[[Opened], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine there, and wait for its result."""
        opened = self.open().result()
        try:
            return asyncio.run_coroutine_threadsafe(work(opened), self._loop).result()
        except CancelledError:
            raise SelectorClosedError(_CLOSED) from None

    async def ask_soon(self, work: Callable[[Opened], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine there; meanwhile the loop that this is awaited on does other things."""
        opened = await asyncio.wrap_future(self.open())
        asked = asyncio.run_coroutine_threadsafe(work(opened), self._loop)
        try:
            return await asyncio.wrap_future(asked)
        except asyncio.CancelledError:
            if asked.cancelled() and self._is_closed:
                raise SelectorClosedError(_CLOSED) from None
            raise

    def post(self, work: Callable[[Opened], None]) -> None:
        """Have something done there, after all that was asked for before; waits for nothing."""

        def opened(future: Future[Opened]) -> None:
            if future.exception() is None:
                with contextlib.suppress(RuntimeError):  # it was closed meanwhile
                    self._loop.call_soon_threadsafe(work, future.result())

        self.open().add_done_callback(opened)

    def stop(self) -> Future[None]:
        """Close it after all posted work, and cancel pending requests; the future completes when it is closed."""

        def over(future: Future[Opened]) -> None:
            if future.exception() is None:
                with contextlib.suppress(RuntimeError):  # it is closed by now
                    self._loop.call_soon_threadsafe(self._over.set)

        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            if self._process != os.getpid() or self._thread.ident is None:
                if is_first:
                    self._ended.set_result(None)
                return self._ended
        if is_first:
            self._opened.add_done_callback(over)
        return self._ended

    def close(self) -> None:
        """Close it, and wait for the end."""
        ended = self.stop()
        if threading.current_thread() is not self._thread:
            with contextlib.suppress(TimeoutError):
                ended.result(CLOSING_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001  # passed on to the waiting caller
            if not self._opened.done():
                self._opened.set_exception(error)
        finally:
            atexit.unregister(self.close)
            self._ended.set_result(None)

    async def _live(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with self._open_it() as opened:
            self._opened.set_result(opened)
            await self._over.wait()
