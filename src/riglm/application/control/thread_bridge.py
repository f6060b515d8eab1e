"""The way from the control API's thread to the proxy's event loop, and to the store."""

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from riglm.application.reports.figures import Observations, read_figures
from riglm.application.worker import Worker
from riglm.domain.control import ControlUnavailableError
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.list_plan import Prices
from riglm.ports.analytics import AnalyticsPort, ArchivePort, RecordStorePort, SessionHistoryPort

TIMEOUT_SECONDS: Final = 5.0
"""Seconds to wait for an answer by default."""

_CLOSING_SECONDS: Final = 0.25

_SECONDS_PER_DAY: Final = 86_400.0

ResultT = TypeVar("ResultT")
StoreT = TypeVar("StoreT", bound=RecordStorePort)


class ProxyLoop:
    """The proxy's event loop, asked from another thread, or from itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """`timeout_seconds` is how many seconds an answer may take."""
        self._loop = loop
        self._timeout_seconds = timeout_seconds

    async def look(self, question: Callable[[], ResultT], *, timeout_seconds: float | None = None) -> ResultT:
        """Have something answered there that takes no time.

        Raises:
            ControlUnavailableError: the loop has ended or is not getting on.
        """

        async def answered() -> ResultT:
            return question()

        return await self.ask(answered, timeout_seconds=timeout_seconds)

    async def ask(
        self, work: Callable[[], Coroutine[Any, Any, ResultT]], *, timeout_seconds: float | None = None
    ) -> ResultT:
        """Have something done there, and give what comes of it.

        Raises:
            ControlUnavailableError: the loop has ended or is not getting on.
        """
        doing = work()
        try:
            asked = asyncio.run_coroutine_threadsafe(doing, self._loop)
        except RuntimeError as error:
            doing.close()
            raise ControlUnavailableError("riglm is ending") from error
        try:
            async with asyncio.timeout(timeout_seconds or self._timeout_seconds):
                return await asyncio.wrap_future(asked)
        except TimeoutError as error:
            raise ControlUnavailableError("riglm did not answer in time: ask again later") from error


class StoreThread(Generic[StoreT]):
    """A thread with a separate store, which it opens at the first query, and again after the store was unavailable.

    A hanging store delays this thread only: callers get an error at once.
    """

    def __init__(
        self, open_store: Callable[[], StoreT], name: str, *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        """`timeout_seconds` is how many seconds an answer may take; the thread is called `name`."""
        self._open_store = open_store
        self._timeout_seconds = timeout_seconds
        self._worker = Worker(name)
        self._lock = threading.Lock()
        self._is_begun = self._is_ended = False
        self._store: StoreT | None = None
        self._busy_since: float | None = None
        self._failed = False

    @property
    def is_failing(self) -> bool:
        """True if the store was unavailable at the last query, or makes no progress."""
        return self._failed or self._is_stuck()

    async def ask(
        self,
        question: Callable[[StoreT], ResultT],
        *,
        undo: Callable[[StoreT, ResultT], object] | None = None,
        timeout_seconds: float | None = None,
    ) -> ResultT:
        """Return the store's answer; with `undo`, an action that finished too late for its caller is undone.

        Raises:
            ControlUnavailableError: the store is unavailable, or did not answer in time.
        """
        if self._is_stuck():
            raise _too_late()
        inquiry = _Inquiry(question, undo)
        doing = self._submit(partial(self._run, inquiry))
        asked = asyncio.wrap_future(doing)
        done, _ = await asyncio.wait({asked}, timeout=timeout_seconds or self._timeout_seconds)
        if not done and inquiry.give_up():
            doing.cancel()
            asked.cancel()
            raise _too_late()
        try:
            return await asked
        except AnalyticsUnavailableError as error:
            raise ControlUnavailableError(str(error)) from error
        except asyncio.CancelledError as error:
            if asked.cancelled() and self._is_ended:
                raise ControlUnavailableError("riglm is ending") from error
            raise

    def close(self) -> None:
        """Query nothing more, and close the store if that takes little time."""
        with self._lock:
            self._is_ended, begun = True, self._is_begun
        if begun:
            with contextlib.suppress(TimeoutError, CancelledError, AnalyticsUnavailableError):
                self._worker.submit(self._detach).result(_CLOSING_SECONDS)
            self._worker.close(timeout=0.0)

    def _submit(self, job: Callable[[], ResultT]) -> "Future[ResultT]":
        with self._lock:
            if not self._is_begun and not self._is_ended:
                self._is_begun = True
                self._worker.start()
            if self._is_ended:
                raise ControlUnavailableError("riglm is ending")
            return self._worker.submit(job)

    def _is_stuck(self) -> bool:
        since = self._busy_since
        return since is not None and time.monotonic() - since > self._timeout_seconds

    def _run(self, inquiry: "_Inquiry[StoreT, ResultT]") -> ResultT:
        self._busy_since = time.monotonic()
        try:
            if self._store is None:
                self._store = self._open_store().__enter__()
            answer = inquiry.run(self._store)
        except AnalyticsUnavailableError:
            self._failed = True
            self._detach()
            raise
        else:
            self._failed = False
            return answer
        finally:
            self._busy_since = None

    def _detach(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.__exit__(None, None, None)


class _Inquiry(Generic[StoreT, ResultT]):
    """One query, and whether its caller still waits."""

    def __init__(self, question: Callable[[StoreT], ResultT], undo: Callable[[StoreT, ResultT], object] | None) -> None:
        self._question = question
        self._undo = undo
        self._lock = threading.Lock()
        self._is_answered = self._is_given_up = False

    def run(self, store: StoreT) -> ResultT:
        """Run the query; undo it if its caller waits no longer."""
        answer = self._question(store)
        with self._lock:
            self._is_answered = not self._is_given_up
        if not self._is_answered and self._undo is not None:
            self._undo(store, answer)
        return answer

    def give_up(self) -> bool:
        """Wait no longer; False when there is an answer by now."""
        with self._lock:
            self._is_given_up = not self._is_answered
            return self._is_given_up


def _too_late() -> ControlUnavailableError:
    return ControlUnavailableError("the analytics store did not answer in time: ask again later")


TTL_SECONDS: Final = 2.0
"""Seconds for which an answer is reused."""

SHARE: Final = 0.03
"""Maximum share of a core for all repeated queries together."""

_LATELY_SECONDS: Final = 60.0
_MAX_KEPT: Final = 64
_Answer = TypeVar("_Answer")


@dataclass(slots=True)
class _CachedAnswer:
    asking: asyncio.Task[Any] | None = None
    answer: Any = None
    answered_at: float = float("-inf")
    asked_at: float = float("-inf")
    took: float = 0.0
    is_there: bool = False


class AnswerCache:
    """Asks a question once for all who ask it at the same time or soon after; used on one event loop.

    The more work the questions of the last minute are, the longer all their answers are kept, so that looking on costs
    no more than `SHARE`. An answer that takes longer than `timeout_seconds` seconds is waited for no longer: an older
    one is used, if there is one. The late answer is used for later queries.
    """

    def __init__(
        self,
        *,
        kept: float = TTL_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = kept
        self._timeout_seconds = timeout_seconds
        self._monotonic = monotonic
        self._kept: OrderedDict[Hashable, _CachedAnswer] = OrderedDict()

    async def ask(self, key: Hashable, question: Callable[[], Awaitable[tuple[_Answer, float]]]) -> _Answer:
        """Return the answer to the query with this `key`; `question` returns it with the seconds of work.

        Raises:
            ControlUnavailableError: it takes too long, and there is no older one; or what the question raises.
        """
        kept = self._kept.setdefault(key, _CachedAnswer())
        self._kept.move_to_end(key)
        while len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)
        kept.asked_at = now = self._monotonic()
        if now < kept.answered_at + self._keeps(now):
            return cast("_Answer", kept.answer)
        if kept.asking is None:
            kept.asking = asyncio.get_running_loop().create_task(self._asked(kept, question))
            kept.asking.add_done_callback(_noticed)
        asking = kept.asking
        await asyncio.wait({asking}, timeout=self._timeout_seconds)
        if asking.done():
            return cast("_Answer", asking.result())
        if kept.is_there:
            return cast("_Answer", kept.answer)
        raise ControlUnavailableError("this takes a while to count: ask again in a moment")

    def _keeps(self, now: float) -> float:
        """How many seconds answers are given again now."""
        work = sum(each.took for each in self._kept.values() if now - each.asked_at < _LATELY_SECONDS)
        return max(self._seconds, work / SHARE)

    async def _asked(self, kept: _CachedAnswer, question: Callable[[], Awaitable[tuple[_Answer, float]]]) -> _Answer:
        try:
            answer, kept.took = await question()
        finally:
            kept.asking = None
        kept.answer, kept.is_there = answer, True
        kept.answered_at = self._monotonic()
        return answer


def _noticed(asking: asyncio.Task[Any]) -> None:
    if not asking.cancelled():
        asking.exception()  # waiting callers get it; without any it is no fault


COUNTING_SECONDS: Final = 60.0
"""Seconds that counting may take; callers get the answer when it is ready."""


class CachedQueries:
    """Asks the store what takes a while to answer, and keeps each answer for a moment."""

    def __init__(
        self,
        store: StoreThread[AnalyticsPort],
        archive: StoreThread[ArchivePort] | None = None,
        retention_days: float = 0.0,
        clock: Callable[[], float] = time.time,
        prices: Callable[[], Prices] = Prices,
    ) -> None:
        """`archive` is asked about times that are more than `retention_days` ago; `clock` is the time of day.

        `prices` returns those in force, on any thread.
        """
        self._prices = prices
        self._store = store
        self._archive = archive
        self._retention_seconds = retention_days * _SECONDS_PER_DAY
        self._clock = clock
        self._remembering = AnswerCache()

    async def counted(self, key: Hashable, question: Callable[[AnalyticsPort], _Answer]) -> _Answer:
        """Return the answer to the query with this `key`.

        Raises:
            ControlUnavailableError: the store is unavailable, or takes too long.
        """
        return await self._remembering.ask(key, lambda: self._store.ask(_timed(question)))

    async def figures(self, since: float) -> Observations:
        """Return the figures of the sessions that started since a time, for all that is shown of them.

        Raises:
            ControlUnavailableError: the store is unavailable, or takes too long.
        """
        return await self.counted_since(
            since, ("figures", since), lambda store: read_figures(store, self._prices(), since=since)
        )

    async def counted_since(
        self, since: float, key: Hashable, question: Callable[[SessionHistoryPort], _Answer]
    ) -> _Answer:
        """Return the answer for all that happened since a time.

        The archive answers if the store may not have it all, and the archive has earlier calls than the store. While
        the archive is unavailable the store answers.

        Raises:
            ControlUnavailableError: the store is unavailable, or takes too long.
        """
        archive = self._archive
        if archive is not None and self._retention_seconds and since < self._clock() - self._retention_seconds:
            with contextlib.suppress(ControlUnavailableError):
                earliest = await self.counted("earliest call", _earliest_call)
                if await self._archived(archive, "earliest call", _earliest_call) < earliest:
                    return await self._archived(archive, key, question)
        return await self.counted(key, question)

    async def _archived(
        self, archive: StoreThread[ArchivePort], key: Hashable, question: Callable[[SessionHistoryPort], _Answer]
    ) -> _Answer:
        return await self._remembering.ask(("archive", key), lambda: archive.ask(_timed(question)))


def _earliest_call(store: SessionHistoryPort) -> float:
    return store.get_earliest_call_time()


_AskedT = TypeVar("_AskedT", bound=SessionHistoryPort)


def _timed(question: Callable[[_AskedT], _Answer]) -> Callable[[_AskedT], tuple[_Answer, float]]:
    def timed(store: _AskedT) -> tuple[_Answer, float]:
        began = time.monotonic()
        return question(store), time.monotonic() - began

    return timed
