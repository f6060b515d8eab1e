"""Tools as people look at them: how each is used, in what company, and which never are."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from riglm.application.control.sessions import cursor_of, key_of, page
from riglm.application.control.thread_bridge import CachedQueries, ProxyLoop
from riglm.application.reports.tool_figures import (
    ToolStatistics,
    UsageCounts,
    tool_statistics,
    tool_totals,
    usage_over_time,
)
from riglm.domain.control import FieldError, InvalidInputError, NotFoundError
from riglm.domain.cooccurrence import Cooccurrence
from riglm.domain.schemas.control_api import (
    MAX_BUCKETS,
    Bucket,
    Companion,
    CooccurrenceMap,
    Page,
    Series,
    ToolDetail,
    ToolEntry,
    ToolPair,
)
from riglm.ports.analytics import AnalyticsPort

FRESH_SECONDS: Final = 30.0
"""So old it may be; maintenance lets it become much older, since nothing else waits for it."""

_SHARE: Final = 100.0  # it is computed again after this many times its duration


class CooccurrenceRefresher:
    """Has co-occurrence refreshed, no more often than that is worth."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since the epoch."""
        self._clock = clock
        self._tried_at = 0.0
        self._pause = FRESH_SECONDS

    def refresh(self, store: AnalyticsPort) -> None:
        """Compute it again if it is old, and if no other process maintains the store; blocks."""
        now = self._clock()
        if now - max(store.get_refresh_time(), self._tried_at) < self._pause:
            return
        self._tried_at = now
        with store.maintenance_lease() as mine:
            if mine:
                began = time.monotonic()
                store.refresh_cooccurrences(now)
                self._pause = max(FRESH_SECONDS, _SHARE * (time.monotonic() - began))


_DAY: Final = 86_400.0


class UsageHistory:
    """Cuts time into pieces, and counts what happened in each."""

    def __init__(self, counting: CachedQueries, *, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since the epoch."""
        self._counting = counting
        self._clock = clock

    async def buckets(
        self,
        *,
        since: float | None,
        until: float | None,
        count: int,
        sessions_since: float | None = None,
        tool: str | None = None,
    ) -> tuple[Bucket, ...]:
        """What happened from `since` until `until`; by default until now, and for a day.

        Sessions count that started since `sessions_since`, by default since `since`. A time without length has no
        buckets. With `tool`, only its calls count.

        Raises:
            Invalid: there are too many buckets.
        """
        end = self._clock() if until is None else until
        start = max(end - _DAY, 0.0) if since is None else since
        if not start < end:  # so that what is no number has none as well
            return ()
        if not 1 <= count <= MAX_BUCKETS:
            raise InvalidInputError(FieldError(path="buckets", detail=f"there may be 1 to {MAX_BUCKETS}"))
        seconds = (end - start) / count

        figures = await self._counting.figures(start if sessions_since is None else sessions_since)
        usage = usage_over_time(figures, start, end, count, tool)
        return tuple(_bucket(start + number * seconds, seconds, each) for number, each in enumerate(usage))


def mean(total: int, count: int) -> float | None:
    """Return the mean of `count` values; None without any."""
    return total / count if count else None


def _bucket(at: float, seconds: float, usage: UsageCounts) -> Bucket:
    return Bucket(
        at=at,
        seconds=seconds,
        calls=usage.calls,
        failures=usage.failures,
        listed=usage.listed,
        searched=usage.searched,
        named=usage.named,
        lists=usage.lists,
        mean_shown=mean(usage.tools_shown, usage.lists),
        mean_available=mean(usage.tools_available, usage.lists),
    )


_BUCKETS: Final = 60
_MAX_COMPANIONS: Final = 50
_LEAD_SECONDS: Final = 900.0
"""The series of a tool begins this long before its first call, so that spans are not shorter than 15 seconds."""

LiveTools = Callable[[], Mapping[str, str]]
"""The tools that are listed now by the names that clients use, each with its server; called on the proxy's loop."""


class ToolQueries:
    """Merges the tools that are listed now with those that are recorded."""

    def __init__(
        self,
        proxy: ProxyLoop,
        counting: CachedQueries,
        history: UsageHistory,
        live_tools: LiveTools,
        *,
        describe: Callable[[str], str | None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`describe` returns the description of a tool, on the proxy's loop; `clock` gives seconds since the epoch."""
        self._describe = describe
        self._proxy = proxy
        self._counting = counting
        self._history = history
        self._live_tools = live_tools
        self._cooccurrences = CooccurrenceRefresher(clock)

    async def known(self, since: float) -> Sequence[ToolEntry]:
        """Every tool that ran or was listed in sessions since then, or is listed now, most used first, then by name.

        Meta-tools are left out, and so are names that only clients used, of tools that there never were.
        """
        live = await self._proxy.look(self._live_tools)
        found = tool_statistics(await self._counting.figures(since), live)
        return [_entry(each, live.get(each.tool, "")) for each in found]

    async def entries(self, *, unused_only: bool, since: float, limit: int, cursor: str | None) -> Page[ToolEntry]:
        """The known tools, page by page."""
        chosen = [each for each in await self.known(since) if not (unused_only and each.uses)]
        if cursor is not None:
            key = key_of(cursor, _tool_key)
            chosen = [each for each in chosen if _place(each) > key]
        return page(chosen, limit, lambda each: cursor_of(each.invocations, each.tool, each.upstream))

    async def detail(self, name: str, *, since: float) -> ToolDetail:
        """One tool, over all servers that had it; its series begins shortly before its first call.

        Raises:
            NotFoundError: it was neither used nor listed.
        """
        entries = [each for each in await self.known(since) if each.tool == name]
        if not entries:
            raise NotFoundError("there is no tool of this name: none was used or listed in the sessions that count")
        entry = entries[0]
        figures = await self._counting.figures(since)
        if len(entries) > 1:
            entry = _entry(tool_totals(figures, name))
        pairs = await self._together(("company", name), lambda store: store.get_cooccurrences([name]))
        begins = [max(0.0, call.timestamp - _LEAD_SECONDS) for _, call in figures.calls if call.tool == name]
        series = await self._history.buckets(
            since=min(begins, default=None), until=None, count=_BUCKETS, sessions_since=since, tool=name
        )
        companions = tuple(_companions(name, pairs))
        description = await self._proxy.look(lambda: self._describe(name))
        return ToolDetail(
            **dict(entry), description=description, cooccurrences=companions, series=Series(buckets=series)
        )

    async def cooccurrence(self, limit: int) -> CooccurrenceMap:
        """The tools that are used together most, and their pairs."""
        found = await self._together(("map", limit), lambda store: store.list_top_cooccurrences(limit))
        tools = dict.fromkeys(tool for pair in found for tool in (pair.tool_a, pair.tool_b))
        pairs = (
            ToolPair(a=pair.tool_a, b=pair.tool_b, count=pair.count, mean_distance=pair.average_distance)
            for pair in found
        )
        return CooccurrenceMap(tools=tuple(tools), pairs=tuple(pairs))

    async def _together(
        self, key: tuple[object, ...], question: Callable[[AnalyticsPort], Sequence[Cooccurrence]]
    ) -> Sequence[Cooccurrence]:
        def counted(store: AnalyticsPort) -> Sequence[Cooccurrence]:
            self._cooccurrences.refresh(store)
            return question(store)

        return await self._counting.counted(key, counted)


def _place(entry: ToolEntry) -> tuple[int, str, str]:
    return -entry.invocations, entry.tool, entry.upstream


def _tool_key(invocations: int, tool: str, upstream: str) -> tuple[int, str, str]:
    return -int(invocations), str(tool), str(upstream)


def _entry(found: ToolStatistics, live_upstream: str = "") -> ToolEntry:
    return ToolEntry(
        tool=found.tool,
        upstream=found.upstream if found.invocations else live_upstream,
        invocations=found.invocations,
        uses=found.uses,
        failures=found.failures,
        sessions=found.sessions,
        listed=found.listed,
        searched=found.searched,
        named=found.invocations - found.listed - found.searched,
        median_ms=found.median_ms,
        p95_ms=found.p95_ms,
        last_used=found.last_used,
    )


def _companions(name: str, pairs: Iterable[Cooccurrence]) -> Sequence[Companion]:
    return [
        Companion(
            tool=pair.tool_b if pair.tool_a == name else pair.tool_a,
            count=pair.count,
            mean_distance=pair.average_distance,
        )
        for pair in pairs
    ][:_MAX_COMPANIONS]
