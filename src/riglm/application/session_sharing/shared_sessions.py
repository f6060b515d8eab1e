"""The sessions that riglm records, and how far each has come: the same in every process."""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Coroutine
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID
from weakref import WeakValueDictionary

from riglm.application.session_sharing.session_record import SessionRecord, decoded, encoded, merged, recorded
from riglm.application.session_sharing.signing import (
    StateSigner,
    WriteVersions,
    changed_by,
    count_name,
    head,
    read_head,
    session_name,
)
from riglm.application.sessions.registry import SessionRegistry
from riglm.application.sessions.session_index import SessionLookupKey
from riglm.domain.errors import StateUnavailableError
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.ports.session_state import SessionStatePort, TimeBudget

_CHECK: Final = "key"
_CHECKED_SECONDS: Final = 7 * 86_400.0
_ATTEMPTS: Final = 4
"""So often a request tries to keep what it changed where other processes are faster; the rest is done after it."""

_MAX_UNSURE: Final = 3


class _Known(NamedTuple):
    """A session as it was last read or kept: its revision and content, the value that is kept of it, and who wrote it.

    Returns None if the value is not newer than `known` or not stored.
    """

    revision: int
    body: bytes
    value: bytes
    is_published: bool = True
    writers: WriteVersions = MappingProxyType({})


class FetchedSession(NamedTuple):
    """A session that another process opened, as it was just read."""

    known: _Known
    record: SessionRecord


_UNKNOWN: Final = _Known(0, b"", b"", is_published=False)


class SharedSessions:
    """Reads a session before a request of it is taken, and keeps it before the answer goes out."""

    def __init__(
        self,
        state: SessionStatePort,
        sealer: StateSigner,
        registry: SessionRegistry,
        progress: Callable[[Session], SessionState | None],
        on_context: Callable[[Session, SessionState, str], Coroutine[Any, Any, None]],
        seconds: float,
    ) -> None:
        """`progress` gives what filtering remembers of a session, None when nothing is filtered.

        `on_context` is called in a background task when another process has set a session's context. Sessions without
        activity are deleted after `seconds`.
        """
        self._state = state
        self._sealer = sealer
        self._registry = registry
        self._progress = progress
        self._on_context = on_context
        self._seconds = seconds
        self._name = secrets.token_hex(4)
        self._changes = 0
        self._known: dict[UUID, _Known] = {}
        self._unsure: dict[UUID, list[_Known]] = {}
        """What was sent of each without an answer: it may be kept or not."""
        self._owed: dict[UUID, Session] = {}
        """What could not be kept, and will be when the state is back."""
        self._repaying: asyncio.Task[None] | None = None
        self._turns: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()
        self._contexts: set[asyncio.Task[None]] = set()

    async def check_key(self) -> None:
        """Warn if another process signs with another key, so that neither can read the sessions of the other."""
        try:
            value = await self._state.claim(_CHECK, self._sealer.seal(_CHECK, b""), _CHECKED_SECONDS)
        except StateUnavailableError:
            return
        self._sealer.opened(_CHECK, value)

    async def arrive(self, session: Session) -> bool:
        """Bring a session up to date; whether anything happened in it elsewhere."""
        name = session_name(self._sealer, session.id)
        try:
            value, _ = await self._state.take([name, count_name(self._sealer, session.id)], self._seconds)
        except StateUnavailableError:
            return False
        return self._bring(session, name, value)

    async def reserve(self, session: Session) -> int | None:
        """Reserve the number of the call that is about to start; no other process gets the same number.

        Returns None while the state is unavailable; the process then counts by itself.
        """
        try:
            number = await self._state.number(count_name(self._sealer, session.id), session.sequence, self._seconds)
        except StateUnavailableError:
            return None
        session.reserve(number)
        return number

    async def arrive_at(self, place: SessionLookupKey) -> bool:
        """Load the session that is stored for a key. Returns False if no process has opened one."""
        here, pointer = self._registry.at(place), self._place_name(place)
        names = (
            [pointer]
            if here is None
            else [pointer, session_name(self._sealer, here.id), count_name(self._sealer, here.id)]
        )
        try:
            values = await self._state.take(names, self._seconds)
            owner = self._owner(pointer, values[0])
            if here is not None and owner == here.id:
                self._bring(here, names[1], values[1])
            elif owner is not None:
                await self._adopt(place, owner)
        except StateUnavailableError:
            return False
        return owner is not None

    async def leave_at(self, place: SessionLookupKey, *, is_new: bool) -> None:
        """Let others find the session at a place, if it `is_new` there, and what a request changed in it."""
        session = self._registry.at(place)
        if session is None:
            return
        if is_new:
            pointer = self._place_name(place)
            with contextlib.suppress(StateUnavailableError):  # the first process after recovery decides
                await self._state.claim(pointer, self._sealer.seal(pointer, session.id.bytes), self._seconds)
        await self.leave(session)

    async def leave(self, session: Session) -> None:
        """Let others know what a request changed in a session.

        One request at a time does so; what it leaves holds the changes of all that wait for it.
        """
        async with self._turns.setdefault(session.id, asyncio.Lock()):
            for _ in range(_ATTEMPTS):
                if await self._keep(session):
                    return
        self._owe(session)

    async def fetch(self, session_id: UUID) -> FetchedSession | None:
        """A session that another process opened.

        Raises:
            StateUnavailableError: it cannot be read now.
        """
        name = session_name(self._sealer, session_id)
        value, _ = await self._state.take([name, count_name(self._sealer, session_id)], self._seconds)
        found = self._read(name, value)
        return found if found is not None and found.record.id == session_id else None

    def adopted(self, fetched: FetchedSession, place: SessionLookupKey | None = None) -> Session:
        """Go on with a session that another process opened."""
        opened = fetched.record.session()
        session = self._registry.adopt(opened, place)
        if session is opened:
            self._known[session.id] = fetched.known
            self._apply(session, fetched.record)
        else:
            self._bring(session, session_name(self._sealer, session.id), fetched.known.value)
        return session

    async def sweep(self) -> None:
        """End the sessions that no process has used for too long."""
        silent = self._registry.silent()
        try:
            alive = await self._state.there([session_name(self._sealer, session.id) for session in silent])
        except StateUnavailableError:
            return
        for session, is_alive in zip(silent, alive, strict=True):
            if is_alive:
                self._registry.heard_of(session)
            else:
                self._registry.end(session)

    def forget(self, session: Session) -> None:
        """A session is not kept here any more."""
        self._known.pop(session.id, None)
        self._unsure.pop(session.id, None)
        self._owed.pop(session.id, None)

    async def _adopt(self, place: SessionLookupKey, owner: UUID) -> None:
        fetched = await self.fetch(owner)
        if fetched is not None:
            self.adopted(fetched, place)

    async def _keep(self, session: Session) -> bool:
        """Store a session. Returns False if another process has stored a newer version."""
        id_ = session.id
        known, body = self._known.get(id_, _UNKNOWN), encoded(session, self._progress(session))
        if (body == known.body and known.is_published) or self._registry.known(id_) is not session:
            self._owed.pop(id_, None)
            return True
        name, kept = session_name(self._sealer, id_), self._changed(id_, known, body)
        try:
            found = await self._state.swap(name, known.value, kept.value, self._seconds)
        except StateUnavailableError:
            self._unsure[id_] = [*self._unsure.get(id_, [])[-_MAX_UNSURE:], kept]
            self._owe(session)
            return True
        if found is None or found == kept.value:
            self._known[id_] = kept
            self._unsure.pop(id_, None)
            self._owed.pop(id_, None)
            return True
        self._bring(session, name, found)
        return False

    def _changed(self, id_: UUID, known: _Known, body: bytes) -> _Known:
        """The value to keep of a session in the place of the one that is known."""
        self._changes += 1
        revision, writers = known.revision + 1, changed_by(known.writers, self._name, self._changes)
        name = session_name(self._sealer, id_)
        return _Known(
            revision, body, self._sealer.seal(name, b"%b\n%b" % (head(revision, writers), body)), writers=writers
        )

    def _owe(self, session: Session) -> None:
        self._owed[session.id] = session
        if self._repaying is None:
            self._repaying = asyncio.get_running_loop().create_task(self._repay())

    async def _repay(self) -> None:
        """Store in the background what could not be stored while the state was unavailable."""
        try:
            while self._owed and await self._state.returned(self._seconds):
                session = self._owed.pop(next(iter(self._owed)))
                with TimeBudget():
                    await self.leave(session)
        finally:
            self._repaying = None

    def _bring(self, session: Session, name: str, value: bytes | None) -> bool:
        """Take over what is kept of a session, and put what happened here since on top of it; whether it is news."""
        known = self._known.get(session.id, _UNKNOWN)
        if value is None or value == known.value:
            self._known[session.id] = known._replace(is_published=known.is_published and value is not None)
            return False
        for sent in self._unsure.get(session.id, ()):
            if sent.value == value:
                self._known[session.id] = sent
                return False
        found = self._read(name, value)
        if found is None or found.record.id != session.id or found.known.revision < known.revision:
            self._known[session.id] = known._replace(value=value, is_published=False)  # nothing to go by
            return False
        known = self._taken(session.id, found.known) or known
        self._known[session.id] = found.known
        if found.known.body == known.body:
            return False
        base = decoded(known.body) if known.body else None
        ours = recorded(session, self._progress(session))
        self._apply(session, found.record if ours == base else merged(base, ours, found.record))
        return True

    def _taken(self, id_: UUID, found: _Known) -> _Known | None:
        """What was sent without an answer and is in a value that others made since; None when nothing is."""
        mine = found.writers.get(self._name)
        return next((sent for sent in self._unsure.get(id_, ()) if sent.writers[self._name] == mine), None)

    def _apply(self, session: Session, record: SessionRecord) -> None:
        state = self._progress(session)
        if record.bring(session, state) and state is not None and state.context is not None:
            task = asyncio.get_running_loop().create_task(self._on_context(session, state, state.context.text))
            self._contexts.add(task)
            task.add_done_callback(self._contexts.discard)

    def _read(self, name: str, value: bytes | None) -> FetchedSession | None:
        plain = self._sealer.opened(name, value)
        if plain is None or value is None:
            return None
        line, _, body = plain.partition(b"\n")
        told, record = read_head(line), decoded(body)
        if told is None or record is None:
            self._sealer.reject("it is no session")
            return None
        revision, writers = told
        return FetchedSession(_Known(revision, body, value, writers=writers), record)

    def _owner(self, pointer: str, value: bytes | None) -> UUID | None:
        plain = self._sealer.opened(pointer, value)
        return UUID(bytes=plain) if plain is not None and len(plain) == 16 else None

    def _place_name(self, place: SessionLookupKey) -> str:
        return self._sealer.name("place", *place)
