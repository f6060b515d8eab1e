"""Usage kept in the memory of this process, and forgotten with it."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, TypeVar
from uuid import UUID

from riglm.adapters.analytics import memory_counting as counting
from riglm.adapters.analytics.memory_maintenance import InMemoryMaintenance
from riglm.adapters.analytics.memory_overview import InMemoryOverview
from riglm.adapters.analytics.session_uses import SessionRow, to_session_uses
from riglm.domain.cooccurrence import MOST_SESSIONS, CooccurrenceCounter, ToolCooccurrence
from riglm.domain.exposure import Exposure, ExposureTotals
from riglm.domain.invocation import OWN_UPSTREAM, USES, ToolInvocation
from riglm.domain.learning import LearnedPair
from riglm.domain.session import PROFILE, Session
from riglm.domain.tool_catalog import ToolCatalog
from riglm.domain.usage import MAX_SESSIONS, SessionUse
from riglm.ports.analytics import (
    AnalyticsPort,
    PairsForgotten,
    Record,
    RecordedCall,
    RecordedSession,
    RecordRefused,
    SessionClosed,
)
from riglm.ports.maintenance import ROWS_AT_ONCE
from riglm.ports.overview import SessionSummary, ToolStatistics

CAPACITY: Final = 100_000
"""Maximum number of sessions, invocations, exposures and learned pairs; the oldest are removed first."""

_Happened = TypeVar("_Happened", ToolInvocation, Exposure)
_Kept = TypeVar("_Kept", Session, ToolInvocation, Exposure, LearnedPair)


class InMemoryAnalytics(InMemoryMaintenance, InMemoryOverview, AnalyticsPort):
    """Keeps the latest usage in plain dictionaries; opening and closing it keeps what it holds."""

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        super().__init__()
        self._capacity = capacity
        self._lock = threading.Lock()
        self._maintaining = threading.Lock()
        self._sessions: dict[UUID, Session] = {}
        self._invocations: dict[UUID, ToolInvocation] = {}
        self._exposures: dict[UUID, Exposure] = {}
        self._pairs: dict[UUID, LearnedPair] = {}
        self._cooccurrences: tuple[ToolCooccurrence, ...] = ()

    def __enter__(self) -> Self:
        """Ready as it is."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep what is held: this object may be opened again."""

    @contextmanager
    def maintenance_lease(self) -> Iterator[bool]:
        """Hold the maintenance lease while the block runs; yields False if it is already held."""
        mine = self._maintaining.acquire(blocking=False)
        try:
            yield mine
        finally:
            if mine:
                self._maintaining.release()

    def record_many(self, records: Sequence[Record]) -> None:
        """Store all records, or none of them."""
        for record in records:
            if not isinstance(record, Record):
                raise RecordRefused(f"{type(record).__name__} is no record")
        with self._lock:
            records = self._admitted(records)
            for record in records:
                match record:
                    case Session():
                        self._keep(self._sessions, self._merged(record))
                    case ToolInvocation():
                        self._keep(self._invocations, self._invocations.get(record.id, record))
                    case Exposure():
                        self._keep(self._exposures, self._exposures.get(record.id) or _with_sorted_hidden(record))
                    case LearnedPair():
                        self._learn(record)
                    case PairsForgotten():
                        for id_ in record.ids:
                            self._pairs.pop(id_, None)
                    case ToolCatalog():
                        self._put_tool_catalog(record)
            for record in records:
                if isinstance(record, SessionClosed) and record.session_id in self._sessions:
                    self._sessions[record.session_id].ended_at = record.ended_at

    def create_session(self, session: Session) -> None:
        """Store a session."""
        self.record_many([session])

    def close_session(self, session_id: UUID, ended_at: float) -> None:
        """Note the end of a session."""
        self.record_many([SessionClosed(session_id=session_id, ended_at=ended_at)])

    def end_idle_sessions(self, before: float) -> int:
        """End every open session whose latest record is older than that time, and return their number."""
        heard = [(call.session_id, call.timestamp) for call in self._calls()]
        heard += [(shown.session_id, shown.timestamp) for shown in self._shown()]
        with self._lock:
            latest = {id_: each.started_at for id_, each in self._sessions.items() if each.ended_at is None}
            for id_, at in heard:
                if id_ in latest:
                    latest[id_] = max(latest[id_], at)
            idle = {id_: at for id_, at in latest.items() if at < before}
            for id_, at in idle.items():
                self._sessions[id_].ended_at = at
        return len(idle)

    def log_invocation(self, invocation: ToolInvocation) -> None:
        """Store one invocation."""
        self.record_many([invocation])

    def get_cooccurrences(self, tools: Sequence[str]) -> Sequence[ToolCooccurrence]:
        """The pairs that hold any of the tools, most frequent first, then by name."""
        wanted = frozenset(tools)
        found = (pair for pair in self._cooccurrences if pair.tool_a in wanted or pair.tool_b in wanted)
        return sorted(found, key=lambda pair: (-pair.count, pair.tool_a, pair.tool_b))

    def get_tool_frequencies(self, since: float) -> Mapping[str, int]:
        """Return invocations by tool since the given time, without meta-tools."""
        calls = (call for call in self._calls() if call.upstream != OWN_UPSTREAM)
        return Counter(call.tool for call in calls if call.timestamp >= since)

    def refresh_cooccurrences(self, now: float, most_sessions: int = MOST_SESSIONS) -> int:
        """Recompute co-occurrence from the invocations of the latest sessions, and return the number of pairs."""
        counter = CooccurrenceCounter()
        by_session = _by_session(_lessons(self._calls()))
        for _, calls in sorted(by_session.items(), reverse=True)[:most_sessions]:
            counter.add_session((call.tool, call.sequence_number) for call in _in_order(calls))
        self._cooccurrences = tuple(counter.pairs(now))
        return len(counter)

    def latest_refresh(self) -> float:
        """When co-occurrence was computed last; 0 when it never was or there are no pairs."""
        return max((pair.last_updated for pair in self._cooccurrences), default=0.0)

    def list_sessions(self, limit: int = 100, *, active_only: bool = False) -> Sequence[SessionSummary]:
        """The latest sessions, newest first."""
        with self._lock:
            sessions = [session for session in self._sessions.values() if session.ended_at is None or not active_only]
            sessions.sort(key=lambda session: (session.started_at, session.id), reverse=True)
            latest = [_copy(session) for session in sessions[:limit]]
        calls, shown = _by_session(self._calls()), _by_session(self._shown())
        return [counting.summary(session, calls[session.id], shown[session.id]) for session in latest]

    def list_invocations(self, session_id: UUID) -> Sequence[ToolInvocation]:
        """One session's invocations in order."""
        return _in_order(call for call in self._calls() if call.session_id == session_id)

    def list_exposures(self, *session_ids: UUID) -> Sequence[Exposure]:
        """Return the exposures of sessions, each session's in the order of their time."""
        wanted = set(session_ids)
        found = [exposure for exposure in self._shown() if exposure.session_id in wanted]
        return sorted(found, key=lambda exposure: (exposure.timestamp, exposure.id))

    def tool_statistics(self, since: float = 0.0) -> Sequence[ToolStatistics]:
        """Every tool that was shown or used since the given time, most used first, then by name; never used: zeros."""
        calls = [call for call in self._calls() if call.timestamp >= since]
        shown = (tool for exposure in self._shown() if exposure.timestamp >= since for tool in exposure.seen)
        return counting.tools(calls, shown)

    def exposure_totals(self, since: float = 0.0) -> Sequence[ExposureTotals]:
        """What was shown since the given time came to, for each mode that occurred, in the order of their names."""
        return counting.totals([each for each in self._shown() if each.timestamp >= since])

    def recent_calls(
        self, limit_sessions: int = 1000, since: float = 0.0, principal: str | None = None
    ) -> Sequence[RecordedSession]:
        """The latest sessions, of a principal or of all, with a successful call, oldest first, with all their uses."""
        with self._lock:
            sessions = [_copy(session) for session in self._sessions.values() if session.started_at >= since]
        calls = _by_session(_uses(self._calls()))
        taught = {call.session_id for call in _lessons(self._calls())}
        mine = (each for each in sessions if each.id in taught and principal in (None, each.principal))
        used = sorted(mine, key=lambda each: (each.started_at, each.id))
        return [_recorded(session, calls[session.id]) for session in used[max(0, len(used) - limit_sessions) :]]

    def list_learned_pairs(self, model: str, limit: int = 5000) -> Sequence[LearnedPair]:
        """The learned pairs of one model, newest first, then the most confident."""
        with self._lock:
            found = [pair for pair in self._pairs.values() if pair.model == model]
        return sorted(found, key=lambda pair: (-pair.updated_at, -pair.confidence, pair.id))[:limit]

    def prune_learned_pairs(self, most: int, at_once: int = ROWS_AT_ONCE) -> Iterator[int]:
        """Delete all learned pairs but the `most` newest, of any model, about `at_once` in each step."""
        while True:
            with self._lock:
                excess = max(0, len(self._pairs) - most)
                oldest = sorted(self._pairs.values(), key=lambda pair: (pair.updated_at, pair.id))
                for pair in oldest[: min(excess, at_once)]:
                    del self._pairs[pair.id]
            if not excess:
                return
            yield min(excess, at_once)

    def list_session_uses(self, principal: str | None = None, limit: int = MAX_SESSIONS) -> Sequence[SessionUse]:
        """Return the latest sessions with a successful call of an upstream tool, newest first."""
        with self._lock:
            sessions = [
                SessionRow(each.id, each.started_at, each.client.name, each.principal, dict(each.metadata))
                for each in self._sessions.values()
                if principal in (None, each.principal)
            ]
        sessions.sort(key=lambda each: (each.started_at, each.id), reverse=True)
        used = _in_order(call for call in self._calls() if call.success and call.upstream != OWN_UPSTREAM)
        return to_session_uses(sessions, ((call.session_id, call.tool) for call in used))[:limit]

    def _calls(self) -> list[ToolInvocation]:
        with self._lock:
            return list(self._invocations.values())

    def _shown(self) -> list[Exposure]:
        with self._lock:
            return list(self._exposures.values())

    def _keep(self, kept: dict[UUID, _Kept], record: _Kept) -> None:
        kept[record.id] = record
        if len(kept) > self._capacity:
            del kept[next(iter(kept))]

    def _learn(self, pair: LearnedPair) -> None:
        if pair.teacher is not None and pair.session_id not in self._sessions:
            self._teachers.setdefault(pair.id, set()).add(pair.teacher)
        elif pair.session_id is not None:
            self._taught.setdefault(pair.id, set()).add(pair.session_id)
        stored = self._pairs.get(pair.id)
        if stored is None or stored.updated_at <= pair.updated_at:
            vector = pair.vector.copy()
            vector.setflags(write=False)
            self._pairs.pop(pair.id, None)
            self._keep(self._pairs, replace(pair, vector=vector))

    def _merged(self, session: Session) -> Session:
        merged = _copy(session)
        stored = self._sessions.get(session.id)
        if stored is not None:
            merged.started_at = stored.started_at
            merged.ended_at = session.ended_at if stored.ended_at is None else stored.ended_at
        return merged


def _copy(session: Session) -> Session:
    return replace(session, keys=dict(session.keys), metadata=dict(session.metadata))


def _with_sorted_hidden(exposure: Exposure) -> Exposure:
    return replace(exposure, hidden=tuple(sorted(set(exposure.hidden) - set(exposure.shown))))


def _uses(calls: Iterable[ToolInvocation]) -> Iterator[ToolInvocation]:
    return (call for call in calls if call.error_kind in USES and call.upstream != OWN_UPSTREAM)


def _lessons(calls: Iterable[ToolInvocation]) -> Iterator[ToolInvocation]:
    return (call for call in _uses(calls) if call.success)


def _in_order(calls: Iterable[ToolInvocation]) -> list[ToolInvocation]:
    return sorted(calls, key=lambda call: (call.sequence_number, call.id))


def _by_session(records: Iterable[_Happened]) -> defaultdict[UUID, list[_Happened]]:
    found: defaultdict[UUID, list[_Happened]] = defaultdict(list)
    for record in records:
        found[record.session_id].append(record)
    return found


def _recorded(session: Session, calls: Iterable[ToolInvocation]) -> RecordedSession:
    told = (
        RecordedCall(call.tool, call.upstream, call.found, call.success, call.timestamp) for call in _in_order(calls)
    )
    return RecordedSession(
        id=session.id,
        started_at=session.started_at,
        client=session.client.name,
        client_id=session.client_id,
        principal=session.principal,
        profile=session.metadata.get(PROFILE, ""),
        tools_available=session.tools_available,
        calls=tuple(told),
    )
