"""Calls from the control API's thread to the proxy's event loop, and to the store on a separate thread."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, Final, Generic, TypeVar

from riglm.application.worker import Worker
from riglm.domain.control import ControlUnavailableError
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.ports.analytics import RecordStorePort

TIMEOUT_SECONDS: Final = 5.0
"""Default seconds to wait for a result."""

_CLOSE_SECONDS: Final = 0.25

ResultT = TypeVar("ResultT")
StoreT = TypeVar("StoreT", bound=RecordStorePort)


class ProxyLoop:
    """The event loop of the proxy, called from a different one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._loop = loop
        self._timeout_seconds = timeout_seconds

    async def look(self, question: Callable[[], ResultT], *, timeout_seconds: float | None = None) -> ResultT:
        """Return the result of a function that is called on the loop and takes no time.

        Raises:
            ControlUnavailableError: the loop is blocked.
        """

        async def answer() -> ResultT:
            return question()

        return await self.ask(answer, timeout_seconds=timeout_seconds)

    async def ask(
        self, work: Callable[[], Coroutine[Any, Any, ResultT]], *, timeout_seconds: float | None = None
    ) -> ResultT:
        """Return the result of a coroutine that runs on the loop.

        Raises:
            ControlUnavailableError: it took too long.
        """
        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            async with asyncio.timeout(timeout_seconds or self._timeout_seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise ControlUnavailableError("riglm did not answer in time: ask again later") from error


class StoreThread(Generic[StoreT]):
    """A thread with a store, which it opens at the first query, and again after the store was unavailable.

    A hanging store delays this thread only: callers get an error, and queries that did not begin are dropped.
    """

    def __init__(
        self, open_store: Callable[[], StoreT], name: str, *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        """`timeout_seconds` is the maximum time for a result; `name` is the name of the thread."""
        self._open_store = open_store
        self._timeout_seconds = timeout_seconds
        self._store: StoreT | None = None
        self._worker = Worker(name)
        self._worker.start()
        self.is_failing = False
        """True if the store was unavailable at the last query, or did not answer in time."""

    async def ask(self, question: Callable[[StoreT], ResultT]) -> ResultT:
        """Return what a function returns for the store.

        Raises:
            ControlUnavailableError: the store is unavailable, or did not answer in time.
        """
        future = self._worker.submit(lambda: self._run(question))
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            self.is_failing = True
            raise ControlUnavailableError("the analytics store did not answer in time: ask again later") from error
        except AnalyticsUnavailableError as error:
            raise ControlUnavailableError(str(error)) from error

    def close(self) -> None:
        """Close the store if that takes little time; queries that wait are dropped."""
        with contextlib.suppress(TimeoutError, CancelledError, AnalyticsUnavailableError):
            self._worker.submit(self._close_store).result(_CLOSE_SECONDS)
        self._worker.stop()

    def _run(self, question: Callable[[StoreT], ResultT]) -> ResultT:
        try:
            if self._store is None:
                self._store = self._open_store().__enter__()
            answer = question(self._store)
        except AnalyticsUnavailableError:
            self.is_failing = True
            self._close_store()
            raise
        self.is_failing = False
        return answer

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.__exit__(None, None, None)
