"""A thread for what would hold the event loop: loading, embedding, indexing."""

import asyncio
import contextlib
import heapq
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import Any, Final, Generic, Self, TypeVar

from riglm.domain.errors import AnalyticsUnavailableError

_Result = TypeVar("_Result")


def run_in_daemon_thread(name: str, job: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Run a blocking job on a thread that the end of the process does not wait for, as for `asyncio.to_thread`."""
    future: Future[_Result] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(job())
        except BaseException as error:  # noqa: BLE001  # the caller gets it
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return asyncio.wrap_future(future)


class Urgency(IntEnum):
    """Which job is done first; the embedding of what a client waits for goes before that of a catalogue."""

    AWAITED = 0
    SOON = 1
    LATER = 2
    BACKGROUND = 3


class Worker:
    """Does jobs one at a time, the most urgent first, in the order given among equals."""

    def __init__(self, name: str = "riglm-prediction") -> None:
        """Nothing runs before `start`."""
        self._jobs: list[tuple[Urgency, int, Future[Any], Callable[[], Any]]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, job: Callable[[], _Result], urgency: Urgency = Urgency.SOON) -> Future[_Result]:
        """Have a job done; after `stop` the future is cancelled."""
        future: Future[_Result] = Future()
        with self._changed:
            if self._closed:
                future.cancel()
                return future
            heapq.heappush(self._jobs, (urgency, next(self._numbers), future, job))
            self._changed.notify()
        return future

    async def run(self, job: Callable[[], _Result], urgency: Urgency = Urgency.SOON) -> _Result:
        """Have a job done and return its result."""
        return await asyncio.wrap_future(self.submit(job, urgency))

    def start(self) -> None:
        """Begin with the jobs."""
        self._thread.start()

    def stop(self) -> None:
        """Take nothing more, and drop what was not begun."""
        with self._changed:
            self._closed = True
            dropped, self._jobs = self._jobs, []
            self._changed.notify()
        for _, _, future, _ in dropped:
            future.cancel()

    def close(self, timeout: float = 1.0) -> None:
        """Stop, and wait at most `timeout` seconds for what was begun."""
        self.stop()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._closed:
                    self._changed.wait()
                if not self._jobs:
                    return
                _, _, future, job = heapq.heappop(self._jobs)
            _do(job, future)
            del job, future  # while there is nothing to do, nothing is held


def _do(job: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = job()
    except BaseException as error:  # noqa: BLE001  # passed on to the waiting caller; a plug-in may even try to exit
        future.set_exception(error)
    else:
        future.set_result(result)


_CLOSE_SECONDS: Final = 0.25
_Store = TypeVar("_Store", bound=AbstractContextManager[Any])


class StoreThread(Generic[_Store]):
    """A thread with a store, which it opens at the first query, and again after the store was unavailable.

    A hanging store delays this thread only: callers get an error, and queries that did not begin are dropped.
    """

    def __init__(self, open_store: Callable[[], _Store], name: str, *, timeout_seconds: float) -> None:
        """`timeout_seconds` is the maximum time for a result; `name` is the name of the thread."""
        self._open_store = open_store
        self._timeout_seconds = timeout_seconds
        self._store: _Store | None = None
        self._worker = Worker(name)
        self._worker.start()
        self.is_failing = False
        """True if the store was unavailable at the last query, or did not answer in time."""

    async def ask(self, question: Callable[[_Store], _Result]) -> _Result:
        """Return what a function returns for the store.

        Raises:
            AnalyticsUnavailableError: it is unavailable, or did not answer in time.
        """
        future = asyncio.wrap_future(self._worker.submit(lambda: self._run(question)))
        try:
            return await asyncio.wait_for(future, self._timeout_seconds)
        except TimeoutError as error:
            self.is_failing = True
            raise AnalyticsUnavailableError("the store did not answer in time: ask again later") from error

    def close(self) -> None:
        """Close the store if that takes little time; queries that wait are dropped."""
        with contextlib.suppress(TimeoutError, CancelledError, AnalyticsUnavailableError):
            self._worker.submit(self._close_store).result(_CLOSE_SECONDS)
        self._worker.stop()

    def _run(self, question: Callable[[_Store], _Result]) -> _Result:
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
