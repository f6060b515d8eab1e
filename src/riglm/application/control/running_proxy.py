"""The running proxy as the control API reads and changes it, from another thread and with cached queries."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from riglm.application.control.configuration import LiveConfiguration
from riglm.application.filtering.active_rules import Overrides
from riglm.application.filtering.filtering_service import FilteringService
from riglm.application.prediction.prediction_service import PredictionService
from riglm.application.proxy.parts import ProxyParts
from riglm.application.reports.figures import Observations, read_figures
from riglm.application.tracking.recorder import Recorder
from riglm.application.worker import StoreThread
from riglm.domain.audit import AuditEvent, AuditLog
from riglm.domain.errors import AnalyticsUnavailableError, ControlUnavailableError
from riglm.domain.list_plan import Prices
from riglm.domain.retention import DAY_SECONDS
from riglm.domain.upstream import UpstreamHealth, UpstreamSpec
from riglm.ports.analytics import AnalyticsPort, ArchivePort, RecordStorePort, SessionHistoryPort

TIMEOUT_SECONDS: Final = 5.0
"""Default seconds to wait for a result."""

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
        """Return the result of a coroutine that runs on the loop, to its end even if nothing waits for it any more.

        Raises:
            ControlUnavailableError: it took too long.
        """
        future = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))
        try:
            return await asyncio.wait_for(asyncio.shield(future), timeout_seconds or self._timeout_seconds)
        except TimeoutError as error:
            raise ControlUnavailableError("riglm did not answer in time: ask again later") from error


class ControlStore(StoreThread[StoreT]):
    """A store for functions of the control API."""

    async def ask(self, question: Callable[[StoreT], ResultT]) -> ResultT:
        """Return what a function returns for the store.

        Raises:
            ControlUnavailableError: the store is unavailable, or did not answer in time.
        """
        try:
            return await super().ask(question)
        except AnalyticsUnavailableError as error:
            raise ControlUnavailableError(str(error)) from error


TTL_SECONDS: Final = 2.0
"""Minimum seconds for which an answer is reused."""

_REST_RATIO: Final = 30
"""Minimum ratio of the seconds for which an answer is reused to those that it took."""

_MAX_ANSWERS: Final = 64


class QueryCache:
    """Asks the store, and keeps each answer for a moment, the longer the more work it was; used on one event loop.

    If an answer takes too long, its caller gets an older one, if there is one.
    """

    def __init__(
        self,
        store: ControlStore[AnalyticsPort],
        archive: ControlStore[ArchivePort] | None = None,
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
        self._retention_seconds = retention_days * DAY_SECONDS
        self._prices = prices
        self._timeout_seconds = timeout_seconds
        self._answers: dict[Hashable, tuple[Any, float]] = {}
        """The last answer to each query, and until when it is reused."""
        self._asking: dict[Hashable, asyncio.Task[None]] = {}

    async def ask(self, key: Hashable, question: Callable[[AnalyticsPort], ResultT]) -> ResultT:
        """Return the answer to the query with this `key`.

        Raises:
            ControlUnavailableError: the store is unavailable, or takes too long.
        """
        return await self._ask(self._store, key, question)

    async def ask_since(
        self, since: float, key: Hashable, question: Callable[[SessionHistoryPort], ResultT]
    ) -> ResultT:
        """Return the answer for all that happened since a time.

        The archive answers if the store may not have it all, and the archive has earlier calls than the store. While
        the archive is unavailable the store answers.
        """
        archive = self._archive
        if archive is not None and self._retention_seconds and since < time.time() - self._retention_seconds:
            with contextlib.suppress(ControlUnavailableError):
                earliest = await self.ask("earliest call", lambda store: store.get_earliest_call_time())
                if await self._ask(archive, "earliest call", lambda store: store.get_earliest_call_time()) < earliest:
                    return await self._ask(archive, key, question)
        return await self.ask(key, question)

    async def figures(self, since: float) -> Observations:
        """Return the figures of the sessions that started since a time."""
        return await self.ask_since(
            since, ("figures", since), lambda store: read_figures(store, self._prices(), since=since)
        )

    async def _ask(self, thread: ControlStore[StoreT], key: Hashable, question: Callable[[StoreT], ResultT]) -> ResultT:
        place = (thread is self._archive, key)
        if place not in self._asking and (place not in self._answers or time.monotonic() >= self._answers[place][1]):
            self._asking[place] = asyncio.create_task(self._refresh(place, thread, question))
            self._asking[place].add_done_callback(lambda task: task.cancelled() or task.exception())  # callers get it
        if asking := self._asking.get(place):
            await asyncio.wait({asking}, timeout=self._timeout_seconds)
            if asking.done():
                asking.result()
        if place not in self._answers:
            raise ControlUnavailableError("this takes a while to count: ask again in a moment")
        answer: ResultT = self._answers[place][0]
        return answer

    async def _refresh(
        self, place: Hashable, thread: ControlStore[StoreT], question: Callable[[StoreT], ResultT]
    ) -> None:
        began = time.monotonic()
        try:
            answer = await thread.ask(question)
            now = time.monotonic()
            self._answers.pop(place, None)
            self._answers[place] = answer, now + max(TTL_SECONDS, _REST_RATIO * (now - began))
            if len(self._answers) > _MAX_ANSWERS:
                del self._answers[next(iter(self._answers))]
        finally:
            del self._asking[place]


_COUNT_SECONDS: Final = 60.0
CHANGE_SECONDS: Final = 30.0
"""Seconds to wait for a change of the configuration: predictors are tried before they count."""


@dataclass(slots=True, kw_only=True, eq=False)
class RunningProxy:
    """A proxy on the event loop on which this is created, for functions that run on the control API's loop.

    `loop` is that of the proxy: `parts`, `filtering`, `prediction`, `overrides`, `configuration` and `upstreams` are
    used there only. `store` answers what takes no time, `queries` what has to count. `open_store` creates a store that
    is not open yet, `open_archive` one that keeps records for longer than `retention_days`. `started_at` is in seconds
    since the epoch.
    """

    parts: ProxyParts
    filtering: FilteringService
    prediction: PredictionService
    overrides: Overrides
    recorder: Recorder
    configuration: LiveConfiguration
    upstreams: Callable[[], Sequence[UpstreamHealth]]
    specs: Sequence[UpstreamSpec]
    version: str
    started_at: float
    store_kind: str
    open_store: Callable[[], AnalyticsPort]
    open_archive: Callable[[], ArchivePort] | None = None
    retention_days: float = 0.0
    audit: AuditLog | None = None

    loop: ProxyLoop = field(init=False)
    store: ControlStore[AnalyticsPort] = field(init=False)
    queries: QueryCache = field(init=False)
    _threads: Sequence[ControlStore[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.loop = ProxyLoop(asyncio.get_running_loop())
        self.store = ControlStore(self.open_store, "riglm-control-store", timeout_seconds=TIMEOUT_SECONDS)
        counting = ControlStore(self.open_store, "riglm-control-counting", timeout_seconds=_COUNT_SECONDS)
        archive = (
            None
            if self.open_archive is None
            else ControlStore(self.open_archive, "riglm-control-archive", timeout_seconds=TIMEOUT_SECONDS)
        )
        self.queries = QueryCache(counting, archive, self.retention_days, lambda: self.filtering.prices)
        self._threads = (self.store, counting, *([] if archive is None else [archive]))

    @property
    def is_store_failing(self) -> bool:
        """True if a record or a query did not reach the store last time."""
        return self.recorder.is_failing or any(thread.is_failing for thread in self._threads)

    def close(self) -> None:
        """Close the stores; may be called on any thread."""
        for thread in self._threads:
            thread.close()

    def record_audit(self, event: AuditEvent, about: Mapping[str, Any]) -> None:
        """Write an event to the audit log, if there is one."""
        if self.audit is not None:
            self.audit(event, about)

    def live_tools(self) -> Mapping[str, str]:
        """Return the server of each tool that is listed now, by the name that clients use; called on the loop."""
        owners = self.parts.owners
        return dict.fromkeys(self.parts.listed.of(owners.only).names, owners.only) if owners.only else owners.servers()
