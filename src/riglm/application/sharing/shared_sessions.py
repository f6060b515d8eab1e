"""The sessions that riglm records, and how far each has come: the same in every process."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple
from uuid import UUID

from riglm.application.kept_sessions import Place
from riglm.application.sessions import SessionRegistry
from riglm.application.sharing.sealing import Sealer
from riglm.application.sharing.session_record import SessionRecord, decoded, encoded
from riglm.domain.errors import StateUnavailable
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.ports.session_state import SessionStatePort

_CHECK: Final = "key"
_LONGEST_REVISION: Final = 16
_CHECKED_SECONDS: Final = 7 * 86_400.0


class _Known(NamedTuple):
    """A session as it was last read or kept: its revision, its content, and the value that both were sealed in."""

    revision: int
    body: bytes
    value: bytes


_UNKNOWN: Final = _Known(0, b"", b"")


class SharedSessions:
    """Reads a session before a request of it is taken, and keeps it before the answer goes out."""

    def __init__(
        self,
        state: SessionStatePort,
        sealer: Sealer,
        registry: SessionRegistry,
        progress: Callable[[Session], SessionState | None],
        on_context: Callable[[Session, SessionState, str], Coroutine[Any, Any, None]],
        seconds: float,
    ) -> None:
        """`progress` gives what filtering remembers of a session, None when nothing is filtered.

        `on_context` is run when a session's context was said in another process, and nobody waits for it. A session of
        which nothing is heard is kept for so many `seconds`.
        """
        self._state = state
        self._sealer = sealer
        self._registry = registry
        self._progress = progress
        self._on_context = on_context
        self._seconds = seconds
        self._known: dict[UUID, _Known] = {}
        self._contexts: set[asyncio.Task[None]] = set()

    async def check_key(self) -> None:
        """Say so if another process seals with another key, so that neither finds the sessions of the other."""
        try:
            value = await self._state.claim(_CHECK, self._sealer.seal(_CHECK, b""), _CHECKED_SECONDS)
        except StateUnavailable:
            return
        self._sealer.opened(_CHECK, value)

    async def arrive(self, session: Session) -> bool:
        """Bring a session up to date; whether anything happened in it elsewhere."""
        name = self._name(session.id)
        try:
            [value] = await self._state.take([name], self._seconds)
        except StateUnavailable:
            return False
        return self._bring(session, name, value)

    async def arrive_at(self, place: Place) -> bool:
        """Bring the session at a place up to date, wherever it was opened; False when no process has one there yet."""
        here, pointer = self._registry.at(place), self._place_name(place)
        names = [pointer] if here is None else [pointer, self._name(here.id)]
        try:
            values = await self._state.take(names, self._seconds)
            owner = self._owner(pointer, values[0])
            if here is not None and owner == here.id:
                self._bring(here, names[1], values[1])
            elif owner is not None:
                await self._adopt(place, owner)
        except StateUnavailable:
            return False
        return owner is not None

    async def leave_at(self, place: Place, *, is_new: bool) -> None:
        """Let others find the session at a place, if it `is_new` there, and what a request changed in it."""
        session = self._registry.at(place)
        if session is None:
            return
        if is_new:
            pointer = self._place_name(place)
            with contextlib.suppress(StateUnavailable):  # whoever comes first when it is back decides
                await self._state.claim(pointer, self._sealer.seal(pointer, session.id.bytes), self._seconds)
        await self.leave(session)

    async def leave(self, session: Session) -> None:
        """Let others know what a request changed in a session."""
        body = encoded(session, self._progress(session))
        known = self._known.get(session.id, _UNKNOWN)
        if body == known.body:
            return
        revision, name = known.revision + 1, self._name(session.id)
        value = self._sealer.seal(name, b"%d\n%b" % (revision, body))
        self._known[session.id] = _Known(revision, body, value)
        await self._state.keep(name, value, self._seconds)

    async def fetch(self, session_id: UUID) -> SessionRecord | None:
        """A session that another process opened.

        Raises:
            StateUnavailable: it cannot be read now.
        """
        name = self._name(session_id)
        [value] = await self._state.take([name], self._seconds)
        found = self._read(name, value)
        if found is None or found[1].id != session_id:
            return None
        self._known[session_id] = found[0]
        return found[1]

    def adopted(self, record: SessionRecord, place: Place | None = None) -> Session:
        """Go on with a session that another process opened."""
        session = self._registry.adopt(record.session(), place)
        self._apply(session, record)
        return session

    async def sweep(self) -> None:
        """End the sessions that no process heard of for too long."""
        silent = self._registry.silent()
        try:
            alive = await self._state.there([self._name(session.id) for session in silent])
        except StateUnavailable:
            return
        for session, is_alive in zip(silent, alive, strict=True):
            if is_alive:
                self._registry.heard_of(session)
            else:
                self._registry.end(session)

    def forget(self, session: Session) -> None:
        """A session is not kept here any more."""
        self._known.pop(session.id, None)

    async def _adopt(self, place: Place, owner: UUID) -> None:
        record = await self.fetch(owner)
        if record is not None:
            self.adopted(record, place)

    def _bring(self, session: Session, name: str, value: bytes | None) -> bool:
        known = self._known.get(session.id, _UNKNOWN)
        if value == known.value:
            return False
        found = self._read(name, value)
        if found is None:
            return False
        read, record = found
        if record.id != session.id or read.revision < known.revision or read.body == known.body:
            return False
        self._known[session.id] = read
        self._apply(session, record)
        return True

    def _apply(self, session: Session, record: SessionRecord) -> None:
        state = self._progress(session)
        if record.bring(session, state) and state is not None and state.context is not None:
            task = asyncio.get_running_loop().create_task(self._on_context(session, state, state.context.text))
            self._contexts.add(task)
            task.add_done_callback(self._contexts.discard)

    def _read(self, name: str, value: bytes | None) -> tuple[_Known, SessionRecord] | None:
        plain = self._sealer.opened(name, value)
        if plain is None or value is None:
            return None
        revision, _, body = plain.partition(b"\n")
        record = decoded(body) if revision.isdigit() and len(revision) < _LONGEST_REVISION else None
        if record is None:
            self._sealer.reject("it is no session")
            return None
        return _Known(int(revision), body, value), record

    def _owner(self, pointer: str, value: bytes | None) -> UUID | None:
        plain = self._sealer.opened(pointer, value)
        return UUID(bytes=plain) if plain is not None and len(plain) == 16 else None

    def _name(self, session_id: UUID) -> str:
        return self._sealer.name("session", session_id.bytes)

    def _place_name(self, place: Place) -> str:
        return self._sealer.name("place", *place)
