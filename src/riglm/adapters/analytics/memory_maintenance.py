"""Records in the memory of this process, looked after."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any
from uuid import UUID

from riglm.adapters.analytics.memory_choices import InMemoryChoices
from riglm.domain.cooccurrence import ToolCooccurrence
from riglm.domain.exposure import Exposure
from riglm.domain.forgetting import Forgotten, Whose
from riglm.domain.invocation import ToolInvocation
from riglm.domain.learning import LearnedPair, Teacher
from riglm.domain.override import Override, OverrideScope
from riglm.domain.retention import Expiry, Removed
from riglm.domain.session import Session
from riglm.domain.warm_set import KEPT_SECONDS, WarmSet
from riglm.ports.analytics import Record, SessionClosed
from riglm.ports.maintenance import ROWS_AT_ONCE, Kind, MaintenancePort, Row


class InMemoryMaintenance(InMemoryChoices, MaintenancePort):
    """What is done to the dictionaries of `InMemoryAnalytics` from time to time."""

    _lock: threading.Lock
    _sessions: dict[UUID, Session]
    _invocations: dict[UUID, ToolInvocation]
    _exposures: dict[UUID, Exposure]
    _pairs: dict[UUID, LearnedPair]
    _cooccurrences: tuple[ToolCooccurrence, ...]

    def __init__(self) -> None:
        super().__init__()
        self._forgotten: dict[tuple[Whose, str], float] = {}
        self._taught: dict[UUID, set[UUID]] = {}
        self._teachers: dict[UUID, set[Teacher]] = {}

    def expired(self, expiry: Expiry) -> Removed:
        """How many records are too old; nothing is removed."""
        calls, shown = self._aged_calls(expiry), self._aged_exposures(expiry)
        return Removed(
            sessions=len(self._aged_sessions(expiry, without={*calls, *shown})),
            invocations=len(calls),
            exposures=len(shown),
            learned_pairs=len(self._aged_pairs(expiry)),
            overrides=sum(not each.holds(expiry.now) for each in self.list_overrides()),
            warm_sets=len(self._aged_warm_sets(expiry)),
        )

    def purge(self, expiry: Expiry, at_once: int = ROWS_AT_ONCE) -> Iterator[Removed]:
        """Remove what is too old, about `at_once` records in each step."""
        for count in self._remove(self._invocations, self._aged_calls(expiry), at_once):
            yield Removed(invocations=count)
        for count in self._remove(self._exposures, self._aged_exposures(expiry), at_once):
            yield Removed(exposures=count)
        old = self._aged_sessions(expiry)
        self._keep_teachers(old)
        for count in self._remove(self._sessions, old, at_once):
            yield Removed(sessions=count)
        for count in self._remove(self._pairs, self._aged_pairs(expiry), at_once):
            yield Removed(learned_pairs=count)
        expired = self._remove_overrides(
            lambda each: not each.holds(expiry.now) or self._is_of_no_session(each, expiry)
        )
        with self._deciding:
            unused = self._aged_warm_sets(expiry)
            for key in unused:
                del self._warm_sets[key]
        yield Removed(overrides=expired, warm_sets=len(unused))

    def known_of(self, forgotten: Forgotten) -> Removed:
        """Return the number of records of a subject, as far as they are counted by session; nothing is deleted."""
        sessions = self._sessions_of(forgotten)
        return Removed(
            sessions=len(sessions),
            invocations=len(self._of_sessions(self._invocations, sessions)),
            exposures=len(self._of_sessions(self._exposures, sessions)),
            learned_pairs=len(self._pairs_of(forgotten)),
            overrides=sum(_is_for(each, forgotten) for each in self.list_overrides()),
            warm_sets=len(self._warm_sets_of(forgotten)),
        )

    def forget(self, forgotten: Forgotten, at_once: int = ROWS_AT_ONCE) -> Iterator[Removed]:
        """Erase a subject, in steps, and refuse its later records."""
        with self._lock:
            at = self._note(forgotten.whose, forgotten.key, forgotten.at)
        sessions = self._sessions_of(replace(forgotten, at=at))
        with self._lock:
            for id_ in sessions:
                self._note(Whose.SESSION, str(id_), at)
        yield self._remove_what_is_personal(replace(forgotten, at=at))
        yield from self._remove_sessions(sessions, at_once)

    def finish_forgetting(self, at_once: int = ROWS_AT_ONCE) -> Iterator[Removed]:
        """Remove what arrived of forgotten sessions before it was known whose they are."""
        with self._lock:
            keys = {key for whose, key in self._forgotten if whose is Whose.SESSION}
            sessions = {each.session_id for each in self._invocations.values() if str(each.session_id) in keys}
            sessions |= {each.session_id for each in self._exposures.values() if str(each.session_id) in keys}
        yield from self._remove_sessions(sessions, at_once)

    def forgotten_sessions(self, since: float = 0.0) -> Sequence[Forgotten]:
        """The sessions that were to be forgotten at this time or later."""
        noted = self._forgotten.copy().items()
        return [
            Forgotten(whose=whose, key=key, at=at)
            for (whose, key), at in noted
            if whose is Whose.SESSION and at >= since
        ]

    def forgettings(self, since: float = 0.0) -> float:
        """Return a number that grows whenever a subject is erased after that time; 0 without any."""
        return sum((at - since for at in self._forgotten.copy().values() if at > since), 0.0)

    def count_rows(self, kind: Kind, since: float = 0.0) -> int:
        """How many records of this kind there are from the given time on."""
        return len(self._told(kind, since))

    def export(self, kind: Kind, since: float = 0.0, at_once: int = 1000) -> Iterator[Sequence[Row]]:
        """All records of this kind from the given time on, oldest first, at most `at_once` together."""
        told = self._told(kind, since)
        return (told[start : start + at_once] for start in range(0, len(told), at_once))

    def size_bytes(self) -> int:
        """Unknown for what is in memory: 0."""
        return 0

    def compact(self, *, whole: bool = False, reserve: float = 0.0) -> Iterator[str]:
        """Do nothing: deleted records leave no empty space."""
        return iter(())

    def _admitted(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return the records without those of erased subjects; the caller holds the lock."""
        if not self._forgotten:
            return records
        for session in (record for record in records if isinstance(record, Session)):
            at = self._forgotten_since(session)
            if at is not None:
                self._forgotten[Whose.SESSION, str(session.id)] = at
        return [record for record in records if not self._is_forgotten(record)]

    def _note(self, whose: Whose, key: str, at: float) -> float:
        """Note who is forgotten and give the time that counts, the later one; the caller holds the lock."""
        later = max(at, self._forgotten.get((whose, key), at))
        self._forgotten[whose, key] = later
        return later

    def _forgotten_since(self, session: Session) -> float | None:
        keys = (
            (Whose.CLIENT, session.client_id),
            (Whose.CLIENT, session.client.name),
            (Whose.PRINCIPAL, session.principal),
        )
        times = [self._forgotten[key] for key in keys if key in self._forgotten]
        return max((at for at in times if at >= session.started_at), default=None)

    def _is_forgotten(self, record: Record) -> bool:
        match record:
            case Session():
                return (Whose.SESSION, str(record.id)) in self._forgotten
            case LearnedPair():
                times = (self._forgotten.get(key, -1.0) for key in _those_behind(record))
                is_late = any(at >= record.updated_at for at in times)
                return is_late or (Whose.SESSION, str(record.session_id)) in self._forgotten
            case ToolInvocation() | Exposure() | SessionClosed():
                return (Whose.SESSION, str(record.session_id)) in self._forgotten
        return False

    def _sessions_of(self, whom: Forgotten) -> set[UUID]:
        with self._lock:
            return {each.id for each in self._sessions.values() if _is_of(each, whom)}

    def _of_sessions(self, records: Mapping[UUID, Any], sessions: set[UUID]) -> list[UUID]:
        with self._lock:
            return [each.id for each in records.values() if each.session_id in sessions]

    def _pairs_of(self, whom: Forgotten) -> list[UUID]:
        with self._lock:
            pairs = [id_ for id_ in self._pairs if self._taught_only(id_, whom)]
            if whom.whose is Whose.PRINCIPAL and whom.key:  # the empty scope is shared by all callers
                in_scope = (pair for pair in self._pairs.values() if pair.scope == whom.key)
                pairs += [pair.id for pair in in_scope if pair.updated_at <= whom.at and pair.id not in pairs]
        return pairs

    def _taught_only(self, pair: UUID, whom: Forgotten) -> bool:
        """Whether nothing is known of a pair but that this client or principal taught it long ago."""
        taught_by = self._teachers.get(pair)
        return bool(taught_by) and not self._taught.get(pair) and all(_is_by(each, whom) for each in taught_by or ())

    def _keep_teachers(self, sessions: Sequence[UUID]) -> None:
        """Put whose these sessions are in the place of what they taught."""
        with self._lock:
            for pair, taught_by in self._taught.items():
                for session in map(self._sessions.__getitem__, taught_by.intersection(sessions)):
                    teacher = Teacher(
                        client_id=session.client_id, client_name=session.client.name, principal=session.principal
                    )
                    self._teachers.setdefault(pair, set()).add(teacher)
                taught_by.difference_update(sessions)

    def _remove_what_is_personal(self, whom: Forgotten) -> Removed:
        pairs = self._pairs_of(whom)
        with self._lock:
            for id_ in pairs:
                self._pairs.pop(id_, None)
            for taught_by in self._teachers.values():
                taught_by -= {each for each in taught_by if _is_by(each, whom)}
        with self._deciding:
            sets = self._warm_sets_of(whom)
            for key in sets:
                del self._warm_sets[key]
        is_principal = whom.whose is Whose.PRINCIPAL
        overrides = self._remove_overrides(lambda each: _is_for(each, whom)) if is_principal else 0
        return Removed(learned_pairs=len(pairs), overrides=overrides, warm_sets=len(sets))

    def _remove_sessions(self, sessions: set[UUID], at_once: int) -> Iterator[Removed]:
        for count in self._remove(self._invocations, self._of_sessions(self._invocations, sessions), at_once):
            yield Removed(invocations=count)
        for count in self._remove(self._exposures, self._of_sessions(self._exposures, sessions), at_once):
            yield Removed(exposures=count)
        with self._lock:
            alone = (id_ for id_, taught_by in self._taught.items() if taught_by and taught_by <= sessions)
            pairs = [id_ for id_ in alone if not self._teachers.get(id_)]
            there = sum(self._pairs.pop(id_, None) is not None for id_ in pairs)
            for taught_by in self._taught.values():
                taught_by.difference_update(sessions)
        yield Removed(learned_pairs=there)
        keys = {str(id_) for id_ in sessions}
        yield Removed(overrides=self._remove_overrides(lambda each: _scope_key(each) in keys))
        for count in self._remove(self._sessions, list(sessions), at_once):
            yield Removed(sessions=count)

    def _remove(self, records: dict[UUID, Any], ids: Sequence[UUID], at_once: int) -> Iterator[int]:
        for start in range(0, len(ids), at_once):
            with self._lock:
                count = sum(records.pop(id_, None) is not None for id_ in ids[start : start + at_once])
            yield count

    def _remove_overrides(self, chosen: Callable[[Override], bool]) -> int:
        with self._deciding:
            gone = [each.id for each in self._overrides.values() if chosen(each)]
            for id_ in gone:
                del self._overrides[id_]
        return len(gone)

    def _is_of_no_session(self, override: Override, expiry: Expiry) -> bool:
        key = _scope_key(override)
        is_old = expiry.sessions is not None and override.created_at < expiry.sessions
        return key is not None and is_old and key not in {str(id_) for id_ in self._sessions}

    def _aged_calls(self, expiry: Expiry) -> list[UUID]:
        return self._aged(self._invocations, lambda each: each.timestamp, expiry.invocations)

    def _aged_exposures(self, expiry: Expiry) -> list[UUID]:
        return self._aged(self._exposures, lambda each: each.timestamp, expiry.exposures)

    def _aged_pairs(self, expiry: Expiry) -> list[UUID]:
        return self._aged(self._pairs, lambda each: each.updated_at, expiry.learned_pairs)

    def _aged_sessions(self, expiry: Expiry, without: set[UUID] | None = None) -> list[UUID]:
        """Sessions that ended long ago and in which nothing happened, not counting the records `without`."""
        if expiry.sessions is None:
            return []
        ignored = without or set()
        with self._lock:
            busy = {each.session_id for each in self._invocations.values() if each.id not in ignored}
            busy |= {each.session_id for each in self._exposures.values() if each.id not in ignored}
            return [
                each.id
                for each in self._sessions.values()
                if each.id not in busy and each.ended_at is not None and each.ended_at < expiry.sessions
            ]

    def _warm_sets_of(self, whom: Forgotten) -> list[tuple[str, str, str]]:
        place = {Whose.PRINCIPAL: 0, Whose.CLIENT: 1}.get(whom.whose)
        return [key for key in self._warm_sets if place is not None and key[place] == whom.key]

    def _aged_warm_sets(self, expiry: Expiry) -> list[tuple[str, str, str]]:
        return [key for key, kept in self._warm_sets.items() if kept.created_at < expiry.now - KEPT_SECONDS]

    def _aged(self, records: Mapping[UUID, Any], time: Callable[[Any], float], before: float | None) -> list[UUID]:
        if before is None:
            return []
        with self._lock:
            return [id_ for id_, each in records.items() if time(each) < before]

    def _told(self, kind: Kind, since: float) -> list[dict[str, Any]]:
        with self._lock:
            records: dict[Kind, Sequence[Any]] = {
                Kind.SESSIONS: list(self._sessions.values()),
                Kind.INVOCATIONS: list(self._invocations.values()),
                Kind.EXPOSURES: list(self._exposures.values()),
                Kind.LEARNED_PAIRS: list(self._pairs.values()),
                Kind.COOCCURRENCES: self._cooccurrences,
            }
        with self._deciding:
            records |= {
                Kind.OVERRIDES: list(self._overrides.values()),
                Kind.WARM_SETS: list(self._warm_sets.values()),
            }
        told = [_plain(each) for each in records[kind]]
        time = _TIMES[kind]
        return sorted((row for row in told if row[time] >= since), key=lambda row: _order(row, time))


_TIMES = {
    Kind.SESSIONS: "started_at",
    Kind.INVOCATIONS: "timestamp",
    Kind.EXPOSURES: "timestamp",
    Kind.COOCCURRENCES: "last_updated",
    Kind.LEARNED_PAIRS: "updated_at",
    Kind.OVERRIDES: "created_at",
    Kind.WARM_SETS: "created_at",
}


def _those_behind(pair: LearnedPair) -> list[tuple[Whose, str]]:
    """Who taught a pair, and whom it counts for; the empty scope is shared by all callers."""
    found = [(Whose.PRINCIPAL, pair.scope)] if pair.scope else []
    if (by := pair.teacher) is not None:
        found += [(Whose.CLIENT, by.client_id), (Whose.CLIENT, by.client_name), (Whose.PRINCIPAL, by.principal)]
    return found


def _is_by(teacher: Teacher, whom: Forgotten) -> bool:
    """Whether it is this client or principal who taught something."""
    match whom.whose:
        case Whose.CLIENT:
            return whom.key in {teacher.client_id, teacher.client_name}
        case Whose.PRINCIPAL:
            return whom.key == teacher.principal
    return False


def _order(row: Row, time: str) -> tuple[Any, ...]:
    rest = ("id", "tool_a", "tool_b", "principal", "client", "profile")
    return (row[time], *(str(row.get(name, "")) for name in rest))


def _plain(record: Any) -> dict[str, Any]:
    """A record in plain values, with the names and values that a database would give it."""
    if isinstance(record, Session):
        told = {
            name.name: getattr(record, name.name)
            for name in fields(record)
            if name.name not in {"client", "sequence", "reserved", "forgotten_at"}
        }
        told |= {"client_name": record.client.name, "client_version": record.client.version}
        told["confidence"] = record.confidence
    elif isinstance(record, LearnedPair):
        told = {
            name.name: getattr(record, name.name)
            for name in fields(record)
            if name.name not in {"session_id", "teacher"}
        }
        told |= {"dimensions": len(record.vector), "vector": record.vector.tolist()}
    elif isinstance(record, WarmSet):
        told = asdict(record)
        told |= told.pop("usage")
    else:
        told = asdict(record)
    return {name: _plain_value(value) for name, value in told.items()}


def _plain_value(value: Any) -> Any:
    match value:
        case UUID():
            return str(value)
        case str():
            return str(value)
        case tuple():
            return list(value)
        case dict():
            return dict(value)
    return value


def _is_of(session: Session, whom: Forgotten) -> bool:
    match whom.whose:
        case Whose.SESSION:
            return str(session.id) == whom.key
        case Whose.CLIENT:
            mine = whom.key in {session.client_id, session.client.name}
        case Whose.PRINCIPAL:
            mine = session.principal == whom.key
    return mine and session.started_at <= whom.at


def _scope_key(override: Override) -> str | None:
    """The id of the session that an override is made for, if it is."""
    return override.key if override.scope is OverrideScope.SESSION else None


def _is_for(override: Override, whom: Forgotten) -> bool:
    scope = OverrideScope.PRINCIPAL if whom.whose is Whose.PRINCIPAL else OverrideScope.SESSION
    return override.scope is scope and override.key == whom.key
