"""Records in the memory of this process, looked at by people."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from riglm.adapters.analytics import memory_counting as counting
from riglm.domain.cooccurrence import ToolCooccurrence
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import OWN_UPSTREAM, USES, Found, ToolInvocation
from riglm.domain.session import Session
from riglm.ports.overview import OverviewPort, SessionKey, SessionSummary, ToolStatistics, Usage


class InMemoryOverview(OverviewPort):
    """What people ask of the dictionaries of `InMemoryAnalytics`."""

    _lock: threading.Lock
    _sessions: dict[UUID, Session]
    _invocations: dict[UUID, ToolInvocation]
    _exposures: dict[UUID, Exposure]
    _cooccurrences: tuple[ToolCooccurrence, ...]

    def sessions_before(
        self, key: SessionKey | None, limit: int, *, active_only: bool = False
    ) -> Sequence[SessionSummary]:
        """The latest sessions whose place is before `key`, newest first."""
        with self._lock:
            found = [
                replace(each, keys=dict(each.keys), metadata=dict(each.metadata))
                for each in self._sessions.values()
                if (each.ended_at is None or not active_only) and (key is None or _key(each) < key)
            ]
        found.sort(key=_key, reverse=True)
        return self._summaries(found[:limit])

    def session_of(self, session_id: UUID) -> SessionSummary | None:
        """The session with this id."""
        with self._lock:
            found = self._sessions.get(session_id)
            copies = [] if found is None else [replace(found, keys=dict(found.keys), metadata=dict(found.metadata))]
        return next(iter(self._summaries(copies)), None)

    def count_sessions(self, since: float = 0.0) -> tuple[int, int]:
        """How many sessions have no end, and how many started since the given time."""
        with self._lock:
            sessions = list(self._sessions.values())
        return sum(each.ended_at is None for each in sessions), sum(each.started_at >= since for each in sessions)

    def latest_invocations(self, session_id: UUID, most: int) -> Sequence[ToolInvocation]:
        """The latest of one session's invocations, in order."""
        with self._lock:
            found = [call for call in self._invocations.values() if call.session_id == session_id]
        return sorted(found, key=lambda call: (call.sequence_number, call.id))[-most:]

    def latest_exposures(self, session_id: UUID, most: int) -> Sequence[Exposure]:
        """The latest of one session's exposures, in the order of their time."""
        with self._lock:
            found = [each for each in self._exposures.values() if each.session_id == session_id]
        return sorted(found, key=lambda each: (each.timestamp, each.id))[-most:]

    def tools_known(self, since: float = 0.0) -> Sequence[ToolStatistics]:
        """Every tool used since the given time, shown in a list or hidden from one, most used first, then by name."""
        with self._lock:
            calls = [each for each in self._invocations.values() if each.timestamp >= since]
            lists = [each for each in self._exposures.values() if each.is_list and each.timestamp >= since]
        return counting.tools(calls, {tool for each in lists for tool in each.available})

    def tool_totals(self, tool: str, since: float = 0.0) -> ToolStatistics | None:
        """Return how a tool was used since the given time, for any upstream; None if it was not used."""
        with self._lock:
            calls = [each for each in self._invocations.values() if each.tool == tool and each.timestamp >= since]
        if not calls:
            return None
        by_upstream = Counter(call.upstream for call in calls)
        most = min(by_upstream, key=lambda upstream: (-by_upstream[upstream], upstream))
        return counting.statistics(tool, most, calls)

    def usage(self, since: float, until: float, spans: int = 1, tool: str | None = None) -> Sequence[Usage]:
        """Return the counts from `since` until just before `until`, in `spans` spans of equal length."""
        with self._lock:
            calls = [each for each in self._invocations.values() if since <= each.timestamp < until]
            shown = [each for each in self._exposures.values() if since <= each.timestamp < until]

        def span(at: float) -> int:
            return 0 if spans == 1 else min(int((at - since) * (spans / (until - since))), spans - 1)

        its_calls: defaultdict[int, list[ToolInvocation]] = defaultdict(list)
        for call in calls:
            if call.upstream != OWN_UPSTREAM and tool in (None, call.tool):
                its_calls[span(call.timestamp)].append(call)
        its_lists: defaultdict[int, list[Exposure]] = defaultdict(list)
        for each in shown:
            if each.is_list:
                its_lists[span(each.timestamp)].append(each)
        return [_usage(its_calls[number], its_lists[number]) for number in range(spans)]

    def top_cooccurrences(self, most_tools: int) -> Sequence[ToolCooccurrence]:
        """Return the pairs among the tools of the most frequent pairs, most frequent first, then by name."""
        pairs = sorted(self._cooccurrences, key=lambda pair: (-pair.count, pair.tool_a, pair.tool_b))
        tools: set[str] = set()
        for pair in pairs:
            more = tools | {pair.tool_a, pair.tool_b}
            if len(more) > most_tools:
                break
            tools = more
        return [pair for pair in pairs if tools.issuperset((pair.tool_a, pair.tool_b))]

    def _summaries(self, sessions: Iterable[Session]) -> Sequence[SessionSummary]:
        """What happened in these sessions."""
        with self._lock:
            calls, shown = list(self._invocations.values()), list(self._exposures.values())
        its_calls: defaultdict[UUID, list[ToolInvocation]] = defaultdict(list)
        for call in calls:
            its_calls[call.session_id].append(call)
        its_lists: defaultdict[UUID, list[Exposure]] = defaultdict(list)
        for each in shown:
            its_lists[each.session_id].append(each)
        return [counting.summary(session, its_calls[session.id], its_lists[session.id]) for session in sessions]


def _key(session: Session) -> SessionKey:
    return SessionKey(session.started_at, session.id)


def _usage(calls: Sequence[ToolInvocation], lists: Sequence[Exposure]) -> Usage:
    found = Counter(call.found for call in calls if call.error_kind in USES)
    return Usage(
        calls=len(calls),
        failures=sum(not call.success for call in calls),
        listed=found[Found.LISTED],
        searched=found[Found.SEARCHED],
        named=found[Found.NAMED],
        lists=len(lists),
        tools_shown=sum(len(each.seen) for each in lists),
        tools_available=sum(len(each.available) for each in lists),
    )
