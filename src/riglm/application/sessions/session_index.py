"""Open sessions by the evidence that identifies them, removed after inactivity."""

from itertools import takewhile
from typing import NamedTuple
from uuid import UUID

from riglm.domain.session import IdentificationMethod, Session


class SessionLookupKey(NamedTuple):
    """Lookup key of a session; it contains the owner of the caller, so that no other caller finds the session."""

    method: IdentificationMethod
    owner: str
    name: str
    value: str


class _IndexedSession:
    __slots__ = ("holders", "last_seen", "places", "session")

    def __init__(self, session: Session, now: float) -> None:
        self.session = session
        self.last_seen = now
        self.holders = 0
        self.places: tuple[SessionLookupKey, ...] = ()


class SessionIndex:
    """Sessions with their places. One that a connection holds stays; others are silent for a while and then over.

    All times are by one monotonic clock, in seconds.
    """

    def __init__(self) -> None:
        self._by_place: dict[SessionLookupKey, _IndexedSession] = {}
        self._held: dict[UUID, _IndexedSession] = {}
        self._free: dict[UUID, _IndexedSession] = {}
        """The longest silent first."""

    def __len__(self) -> int:
        return len(self._held) + len(self._free)

    def add(self, session: Session, now: float, *, held: bool) -> None:
        """Keep a session, held by a connection or not."""
        kept = _IndexedSession(session, now)
        kept.holders = int(held)
        (self._held if held else self._free)[session.id] = kept

    def put(self, place: SessionLookupKey, session: Session) -> None:
        """Let a session be found at one more place."""
        kept = self._find(session)
        if kept is not None:
            kept.places += (place,)
            self._by_place[place] = kept

    def at(self, place: SessionLookupKey) -> Session | None:
        """The session found at a place."""
        kept = self._by_place.get(place)
        return kept.session if kept is not None else None

    def get(self, session_id: UUID) -> Session | None:
        """The kept session with this id."""
        kept = self._held.get(session_id) or self._free.get(session_id)
        return kept.session if kept is not None else None

    def move(self, place: SessionLookupKey, session: Session) -> None:
        """Let another kept session than before be found at a place."""
        before = self._by_place.pop(place)
        before.places = tuple(one for one in before.places if one != place)
        self.put(place, session)

    def hold(self, session: Session) -> None:
        """One more connection holds a kept session."""
        kept = self._free.pop(session.id, None) or self._held[session.id]
        kept.holders += 1
        self._held[session.id] = kept

    def release(self, session: Session, now: float) -> bool:
        """Release a session from a connection. Returns whether it was held, and whether no connection holds it now."""
        kept = self._held.get(session.id)
        if kept is None:
            return False
        kept.holders -= 1
        if kept.holders:
            return False
        del self._held[session.id]
        kept.last_seen = now
        self._free[session.id] = kept
        return True

    def touch(self, session: Session, now: float) -> None:
        """Something happened in a session."""
        kept = self._free.pop(session.id, None)
        if kept is not None:
            kept.last_seen = now
            self._free[session.id] = kept

    def remove(self, session: Session) -> None:
        """Keep a kept session no longer."""
        kept = self._free.pop(session.id, None) or self._held.pop(session.id)
        for place in kept.places:
            del self._by_place[place]

    def longest_silent(self) -> tuple[Session, float] | None:
        """Return the unheld session that is idle for longest, and the time of its last activity."""
        kept = next(iter(self._free.values()), None)
        return (kept.session, kept.last_seen) if kept is not None else None

    def silent_since(self, since: float) -> list[Session]:
        """Return the unheld sessions that are idle since then, the longest idle first."""
        return [kept.session for kept in takewhile(lambda kept: kept.last_seen < since, self._free.values())]

    def free(self) -> int:
        """Number of sessions that no connection holds."""
        return len(self._free)

    def all(self) -> list[Session]:
        """Every kept session."""
        return [kept.session for kept in (*self._held.values(), *self._free.values())]

    def _find(self, session: Session) -> _IndexedSession | None:
        return self._held.get(session.id) or self._free.get(session.id)
