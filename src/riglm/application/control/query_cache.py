"""Queries that take a while: run once for all who ask at about the same time."""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from riglm.application.control.thread_bridge import TIMEOUT_SECONDS, StoreThread
from riglm.application.reports.figures import Observations, read_figures
from riglm.domain.control import ControlUnavailableError
from riglm.domain.list_plan import Prices
from riglm.ports.analytics import AnalyticsPort, ArchivePort, SessionHistoryPort

MIN_TTL_SECONDS: Final = 2.0
"""Minimum seconds for which an answer is reused."""

MAX_SHARE: Final = 0.03
"""Maximum share of a core for all repeated queries together."""

_RECENT_SECONDS: Final = 60.0
_MAX_ANSWERS: Final = 64
_SECONDS_PER_DAY: Final = 86_400.0

_AnswerT = TypeVar("_AnswerT")
_StoreT = TypeVar("_StoreT", bound=SessionHistoryPort)


@dataclass(slots=True)
class _CachedAnswer:
    """The last answer to a query, None before the first, with the seconds of work that it took."""

    answer: tuple[Any, float] | None = None
    answered_at: float = float("-inf")
    asked_at: float = float("-inf")
    asking: asyncio.Task[None] | None = None


class QueryCache:
    """Asks the store, and keeps each answer for a moment; used on one event loop.

    The more work the queries of the last minute are, the longer all their answers are kept, so that they take at most
    `MAX_SHARE` of a core. If an answer takes too long, its caller gets an older one, if there is one.
    """

    def __init__(
        self,
        store: StoreThread[AnalyticsPort],
        archive: StoreThread[ArchivePort] | None = None,
        retention_days: float = 0.0,
        prices: Callable[[], Prices] = Prices,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """`archive` is asked about times that are more than `retention_days` ago.

        `prices` returns those in force, on any thread.
        """
        self._store = store
        self._archive = archive
        self._retention_seconds = retention_days * _SECONDS_PER_DAY
        self._prices = prices
        self._timeout_seconds = timeout_seconds
        self._answers: OrderedDict[Hashable, _CachedAnswer] = OrderedDict()

    async def ask(self, key: Hashable, question: Callable[[AnalyticsPort], _AnswerT]) -> _AnswerT:
        """Return the answer to the query with this `key`.

        Raises:
            ControlUnavailableError: the store is unavailable, or takes too long.
        """
        return await self._cached(key, lambda: self._store.ask(_timed(question)))

    async def ask_since(
        self, since: float, key: Hashable, question: Callable[[SessionHistoryPort], _AnswerT]
    ) -> _AnswerT:
        """Return the answer for all that happened since a time.

        The archive answers if the store may not have it all, and the archive has earlier calls than the store. While
        the archive is unavailable the store answers.
        """
        archive = self._archive
        if archive is not None and self._retention_seconds and since < time.time() - self._retention_seconds:
            with contextlib.suppress(ControlUnavailableError):
                earliest = await self.ask("earliest call", _earliest_call)
                if await self._ask_archive(archive, "earliest call", _earliest_call) < earliest:
                    return await self._ask_archive(archive, key, question)
        return await self.ask(key, question)

    async def figures(self, since: float) -> Observations:
        """Return the figures of the sessions that started since a time."""
        return await self.ask_since(
            since, ("figures", since), lambda store: read_figures(store, self._prices(), since=since)
        )

    async def _ask_archive(
        self, archive: StoreThread[ArchivePort], key: Hashable, question: Callable[[SessionHistoryPort], _AnswerT]
    ) -> _AnswerT:
        return await self._cached(("archive", key), lambda: archive.ask(_timed(question)))

    async def _cached(self, key: Hashable, query: Callable[[], Awaitable[tuple[_AnswerT, float]]]) -> _AnswerT:
        cached = self._answers.setdefault(key, _CachedAnswer())
        self._answers.move_to_end(key)
        while len(self._answers) > _MAX_ANSWERS:
            self._answers.popitem(last=False)
        cached.asked_at = now = time.monotonic()
        if cached.answer is None or now >= cached.answered_at + self._ttl(now):
            if cached.asking is None:
                cached.asking = asyncio.create_task(self._refresh(cached, query))
                cached.asking.add_done_callback(_retrieve_exception)
            asking = cached.asking
            await asyncio.wait({asking}, timeout=self._timeout_seconds)
            if asking.done():
                asking.result()
            if cached.answer is None:
                raise ControlUnavailableError("this takes a while to count: ask again in a moment")
        answer: _AnswerT = cached.answer[0]
        return answer

    def _ttl(self, now: float) -> float:
        """Return the seconds for which answers are reused."""
        recent = (each for each in self._answers.values() if each.answer and now - each.asked_at < _RECENT_SECONDS)
        return max(MIN_TTL_SECONDS, sum(each.answer[1] for each in recent if each.answer) / MAX_SHARE)

    async def _refresh(self, cached: _CachedAnswer, query: Callable[[], Awaitable[tuple[Any, float]]]) -> None:
        try:
            cached.answer = await query()
            cached.answered_at = time.monotonic()
        finally:
            cached.asking = None


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # callers that wait get it; without any it is no fault


def _earliest_call(store: SessionHistoryPort) -> float:
    return store.get_earliest_call_time()


def _timed(question: Callable[[_StoreT], _AnswerT]) -> Callable[[_StoreT], tuple[_AnswerT, float]]:
    def timed(store: _StoreT) -> tuple[_AnswerT, float]:
        began = time.monotonic()
        return question(store), time.monotonic() - began

    return timed
