"""What was used, shown and found, summed up; asked of the store once for all who look on."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from riglm.application.control.crossing import ProxyLoop, StoreThread
from riglm.application.control.cursors import cursor_of, key_of, page
from riglm.application.control.remembering import Remembering
from riglm.application.recording.record_queue import RecordCounts
from riglm.domain.control import (
    MOST_BUCKETS,
    Bucket,
    Companion,
    CooccurrenceMap,
    Fault,
    Invalid,
    ListTotals,
    NotThere,
    Page,
    RecordTotals,
    SessionTotals,
    Summary,
    TokenTotals,
    ToolDetail,
    ToolEntry,
    ToolPair,
    ToolTotals,
    ZeroHop,
)
from riglm.domain.cooccurrence import ToolCooccurrence
from riglm.domain.exposure import ExposureTotals
from riglm.domain.invocation import OWN_UPSTREAM
from riglm.ports.analytics import AnalyticsPort, ToolStatistics
from riglm.ports.overview import Usage

COUNTING_SECONDS: Final = 60.0
"""Counting may take so long; who asks gets the answer when it is there."""

_DAY: Final = 86_400.0
_TOOL_SPANS: Final = 60
_MOST_COMPANIONS: Final = 50

_Answer = TypeVar("_Answer")

LiveTools = Callable[[], Mapping[str, str]]
"""The tools that are listed now by the names that clients use, each with its server; called on the proxy's loop."""


class Statistics:
    """Sums, each kept for a moment."""

    def __init__(
        self,
        proxy: ProxyLoop,
        store: StoreThread,
        live_tools: LiveTools,
        records: Callable[[], RecordCounts],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`records` may be called by any thread."""
        self._proxy = proxy
        self._store = store
        self._live_tools = live_tools
        self._records = records
        self._clock = clock
        self._remembering = Remembering()

    async def tools(self, *, unused_only: bool, since: float, limit: int, cursor: str | None) -> Page[ToolEntry]:
        """Every tool, most used first, then by name."""
        known = await self._known(since)
        chosen = [each for each in known if not (unused_only and each.uses)]
        if cursor is not None:
            key = key_of(cursor, _tool_key)
            chosen = [each for each in chosen if _place(each) > key]
        return page(chosen, limit, lambda each: cursor_of(each.invocations, each.tool, each.upstream))

    async def tool(self, name: str, *, since: float) -> ToolDetail:
        """One tool, over all servers that had it.

        Raises:
            NotThere: it was neither used nor listed.
        """
        entries = [each for each in await self._known(since) if each.tool == name]
        if not entries:
            raise NotThere("there is no tool of this name: none was used, shown or listed" + _since_words(since))
        entry = entries[0]
        if len(entries) > 1:
            together = await self._counted(("tool", name, since), lambda store: store.tool_totals(name, since))
            entry = entry if together is None else _entry(together, {})
        pairs = await self._counted(("pairs", name), lambda store: store.get_cooccurrences([name]))
        now = self._clock()
        buckets = await self.series(since=since or now - _DAY, until=None, buckets=_TOOL_SPANS, tool=name)
        return ToolDetail(tool=entry, cooccurrences=tuple(_companions(name, pairs)), series=buckets)

    async def summary(self, since: float) -> Summary:
        """All at a glance."""

        def counted(store: AnalyticsPort) -> tuple[Usage, Sequence[ExposureTotals], tuple[int, int]]:
            [usage] = store.usage(since, math.inf)
            return usage, store.exposure_totals(since), store.count_sessions(since)

        usage, shown, (active, total) = await self._counted(("summary", since), counted)
        known = [each for each in await self._known(since) if each.upstream != OWN_UPSTREAM]
        used = len({each.tool for each in known if each.uses})
        names = len({each.tool for each in known})
        records = self._records()
        return Summary(
            since=since,
            sessions=SessionTotals(active=active, total=total),
            calls=usage.calls,
            failures=usage.failures,
            zero_hop=ZeroHop(hits=usage.listed, searched=usage.searched, missed=usage.named),
            lists=ListTotals(
                shown=usage.lists,
                changes=sum(each.changes for each in shown if each.mode != "shadow"),
                mean_shown=_mean(usage.tools_shown, usage.lists),
                mean_available=_mean(usage.tools_available, usage.lists),
            ),
            tokens=_tokens(shown),
            records=RecordTotals(
                accepted=records.accepted,
                stored=records.stored,
                queued=records.queued,
                spooled=records.spooled,
                dropped=records.dropped,
                reasons=dict(records.reasons),
            ),
            tools=ToolTotals(known=names, used=used, never_used=names - used),
            searches=sum(each.searches for each in shown),
        )

    async def series(
        self, *, since: float | None, until: float | None, buckets: int, tool: str | None = None
    ) -> tuple[Bucket, ...]:
        """What happened over time; the last bucket ends now unless told otherwise. A time without length has none.

        Raises:
            Invalid: there are too many buckets.
        """
        end = self._clock() if until is None else until
        start = max(end - _DAY, 0.0) if since is None else since
        if not start < end:  # so that what is no number has none as well
            return ()
        if not 1 <= buckets <= MOST_BUCKETS:
            raise Invalid(Fault(path="buckets", detail=f"there may be 1 to {MOST_BUCKETS}"))
        key = ("series", since, until, buckets, tool)
        seconds = (end - start) / buckets

        def counted(store: AnalyticsPort) -> tuple[Bucket, ...]:
            return tuple(
                _bucket(start + number * seconds, seconds, usage)
                for number, usage in enumerate(store.usage(start, end, buckets, tool))
            )

        return await self._counted(key, counted)

    async def cooccurrence(self, limit: int) -> CooccurrenceMap:
        """The tools that are used together most, and their pairs."""
        found = await self._counted(("map", limit), lambda store: store.top_cooccurrences(limit))
        tools = dict.fromkeys(tool for pair in found for tool in (pair.tool_a, pair.tool_b))
        pairs = (
            ToolPair(a=pair.tool_a, b=pair.tool_b, count=pair.count, mean_distance=pair.average_distance)
            for pair in found
        )
        return CooccurrenceMap(tools=tuple(tools), pairs=tuple(pairs))

    async def _known(self, since: float) -> Sequence[ToolEntry]:
        """Every tool that is recorded or listed now, in the order of `_place`."""
        recorded = await self._counted(("tools", since), lambda store: store.tools_known(since))
        live = await self._proxy.look(self._live_tools)
        found = [_entry(each, live) for each in recorded]
        names = {each.tool for each in recorded}
        found += [ToolEntry(tool=tool, upstream=upstream) for tool, upstream in live.items() if tool not in names]
        return sorted(found, key=_place)

    async def _counted(self, key: tuple[object, ...], question: Callable[[AnalyticsPort], _Answer]) -> _Answer:
        return await self._remembering.ask(key, lambda: self._store.ask(question))


def _place(entry: ToolEntry) -> tuple[int, str, str]:
    return -entry.invocations, entry.tool, entry.upstream


def _tool_key(invocations: int, tool: str, upstream: str) -> tuple[int, str, str]:
    return -int(invocations), str(tool), str(upstream)


def _entry(found: ToolStatistics, live: Mapping[str, str]) -> ToolEntry:
    if not found.invocations:
        return ToolEntry(tool=found.tool, upstream=found.upstream or live.get(found.tool, ""))
    return ToolEntry(
        tool=found.tool,
        upstream=found.upstream,
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


def _companions(name: str, pairs: Iterable[ToolCooccurrence]) -> Sequence[Companion]:
    return [
        Companion(
            tool=pair.tool_b if pair.tool_a == name else pair.tool_a,
            count=pair.count,
            mean_distance=pair.average_distance,
        )
        for pair in pairs
    ][:_MOST_COMPANIONS]


def _bucket(at: float, seconds: float, usage: Usage) -> Bucket:
    return Bucket(
        at=at,
        seconds=seconds,
        calls=usage.calls,
        failures=usage.failures,
        listed=usage.listed,
        searched=usage.searched,
        named=usage.named,
        lists=usage.lists,
        mean_shown=_mean(usage.tools_shown, usage.lists),
        mean_available=_mean(usage.tools_available, usage.lists),
    )


def _tokens(shown: Iterable[ExposureTotals]) -> TokenTotals:
    """What clients were given: in the mode `shadow` that is all, and nothing is hidden."""
    total = TokenTotals(shown=0, hidden=0, own=0, resent=0)
    for each in shown:
        if each.mode == "shadow":
            more = TokenTotals(shown=each.tokens_shown + each.tokens_hidden, hidden=0, own=0, resent=0)
        else:
            more = TokenTotals(
                shown=each.tokens_shown, hidden=each.tokens_hidden, own=each.tokens_own, resent=each.tokens_resent
            )
        total = TokenTotals(
            shown=total.shown + more.shown,
            hidden=total.hidden + more.hidden,
            own=total.own + more.own,
            resent=total.resent + more.resent,
        )
    return total


def _mean(total: int, count: int) -> float | None:
    return total / count if count else None


def _since_words(since: float) -> str:
    return "" if since <= 0 else " since then"
