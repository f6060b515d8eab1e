"""Lets several processes be one: what the HTTP side asks before and after each request."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Protocol

from riglm.application.failing_open import FailingOpen
from riglm.application.session_sharing.shared_connections import REPEATED, SharedConnections
from riglm.application.session_sharing.shared_sessions import SharedSessions
from riglm.application.session_sharing.signing import Broadcast, StateSigner
from riglm.application.sessions.registry import SessionRegistry
from riglm.application.sessions.session_index import SessionLookupKey
from riglm.application.tool_lists.selection import NullPrediction
from riglm.application.tracking.tracking_service import TrackingService
from riglm.domain import request_params
from riglm.domain.errors import SessionEndedError
from riglm.domain.jsonrpc import Message
from riglm.domain.request_params import RequestEnvelope
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.ports.downstream import (
    ENDED,
    BeforeResponse,
    Caller,
    ConnectionHandoff,
    HandshakeConnection,
    NewsListener,
    SessionSharing,
)
from riglm.ports.session_state import SessionStatePort, TimeBudget

LINKS: Final = "link"
"""The kind of news that are about one connection."""

SHOWN: Final = "shown"
"""The kind of news that are about the lists of one client."""

_CALL: Final = "tools/call"
_OF_SESSIONS: Final = frozenset({_CALL, "tools/list"})
"""Requests that change what is known of a session."""

_OF_LINKS: Final = REPEATED | {"resources/unsubscribe"}
"""Requests that change state on a server."""

_log: Final = logging.getLogger("riglm.state")


class OverrideBroadcaster(Protocol):
    """Who knows which clients listen: the proxy."""

    def share(self, notify: Callable[[str], None]) -> Callable[[str], None]:
        """Publish the clients whose list changed with `publish`; the returned function handles such messages."""
        ...


class SessionSharingService(SessionSharing):
    """Puts connections, sessions and news together."""

    def __init__(
        self, links: SharedConnections, sessions: SharedSessions, registry: SessionRegistry, news: Broadcast
    ) -> None:
        self._links = links
        self._sessions = sessions
        self._registry = registry
        self.news: Final = news
        self._here: dict[str, bytes] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._guarded = FailingOpen(_log, "sharing a session failed; it stays with this process, and")

    async def begin(self) -> None:
        """Find out whether other processes have the same key."""
        await self._sessions.check_key()

    async def opening(self, caller: Caller) -> None:
        place = self._registry.place_of_call(caller, b"")
        if place is not None:
            with self._guarded, TimeBudget():
                await self._sessions.arrive_at(place)

    async def opened(
        self, session_id: bytes, caller: Caller, handshake: Message, conversation: HandshakeConnection
    ) -> None:
        self._here[self._links.name(session_id)] = session_id
        with self._guarded, TimeBudget():
            place = self._registry.place_of_call(caller, b"")
            if place is not None:
                await self._sessions.leave_at(place, is_new=True)
            await self._links.open(session_id, caller, handshake, conversation)

    async def find(self, session_id: bytes, caller: Caller) -> ConnectionHandoff | None:
        with self._guarded:
            return await self._links.find(session_id, caller)
        return None

    async def resume(
        self,
        session_id: bytes,
        handoff: ConnectionHandoff,
        conversation: HandshakeConnection,
        *,
        introduce: bool = True,
    ) -> bool:
        self._here[self._links.name(session_id)] = session_id
        with self._guarded:
            return await self._links.resume(session_id, handoff, conversation, introduce=introduce)
        return False

    async def arrives(
        self, session_id: bytes, message: Message, caller: Caller, conversation: HandshakeConnection
    ) -> BeforeResponse | None:
        place, to_call = self._place(message, caller), message.method == _CALL
        ended, known, numbered = False, False, _Numbered()
        timeout_seconds = TimeBudget()
        with self._guarded, timeout_seconds:
            refreshing = self._links.refresh(session_id, conversation)
            if message.method in _OF_SESSIONS:
                numbering = self._number(conversation.session if to_call and place is None else None)
                arriving = self._sessions.arrive(conversation.session)
                ended, on_remote_activity, numbered = await asyncio.gather(refreshing, arriving, numbering)
                if on_remote_activity:
                    conversation.on_remote_activity()
            else:
                ended = await refreshing
            if place is not None and not ended:
                known, numbered = await self._arrive_at(place, conversation.session, to_call=to_call)
        if ended:
            raise SessionEndedError
        if message.method not in _OF_SESSIONS and message.method not in _OF_LINKS:
            return None

        async def part(answer: Message) -> None:
            with self._guarded, timeout_seconds:
                numbered.release()
                if message.method in _OF_SESSIONS:
                    await self._sessions.leave(conversation.session)
                if place is not None:
                    await self._sessions.leave_at(place, is_new=not known)
                await self._links.note(session_id, message, answer, conversation)

        return part

    async def modern_arrives(
        self, message: Message, envelope: RequestEnvelope, caller: Caller
    ) -> BeforeResponse | None:
        if message.method not in _OF_SESSIONS:
            return None
        place = self._registry.place_of_request(caller, envelope.client, envelope.meta)
        known, numbered = False, _Numbered()
        timeout_seconds = TimeBudget()
        with self._guarded, timeout_seconds:
            known, numbered = await self._arrive_at(place, None, to_call=message.method == _CALL)

        async def part(_: Message) -> None:
            with self._guarded, timeout_seconds:
                numbered.release()
                await self._sessions.leave_at(place, is_new=not known)

        return part

    async def ended(self, session_id: bytes) -> None:
        with self._guarded:
            await self._links.end(session_id)
            await self.news.notify(LINKS, self._links.name(session_id), ENDED)

    async def lives(self, session_ids: Sequence[bytes], *, longer: bool) -> list[bool]:
        with self._guarded:
            return await self._links.lives(session_ids, longer=longer)
        return [True] * len(session_ids)

    def left(self, session_id: bytes) -> None:
        self._links.forget(session_id)
        self._here.pop(self._links.name(session_id), None)

    def notify(self, session_id: bytes, news: str) -> None:
        self._start(self.news.notify(LINKS, self._links.name(session_id), news))

    def listen(self, listener: NewsListener) -> None:
        def heard(about: str, what: str) -> None:
            session_id = self._here.get(about)
            if session_id is not None:
                self._start(self._heard(session_id, what, listener))

        self.news.on(LINKS, heard)

    def share_changes(self, proxy: OverrideBroadcaster) -> None:
        """Notify modern clients of lists that changed in other processes."""

        def notify(client_id: str) -> None:
            self._start(self.news.notify(SHOWN, client_id, ""))

        heard = proxy.share(notify)
        self.news.on(SHOWN, lambda client_id, _: heard(client_id))

    def forgotten(self, session: Session) -> None:
        """Publish that the state of a session was discarded, so that other processes discard theirs."""
        self._start(self._leave(session))

    async def sweep(self) -> None:
        """End the sessions that no process has used for too long."""
        with self._guarded:
            await self._sessions.sweep()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _arrive_at(
        self, place: SessionLookupKey, base: Session | None, *, to_call: bool
    ) -> tuple[bool, "_Numbered"]:
        """Bring the session at a place up to date: whether it is known there, and the number of a call in it.

        It is asked for at once, of the session that was there before, or else of the one that is there then, or of
        the connection's.
        """
        here = self._registry.at(place)
        known, numbered = await asyncio.gather(self._sessions.arrive_at(place), self._number(here if to_call else None))
        there = self._registry.at(place) or base
        if to_call and there is not here:
            numbered.release()
            numbered = await self._number(there)
        return known, numbered

    async def _number(self, session: Session | None) -> "_Numbered":
        number = None if session is None else await self._sessions.reserve(session)
        return _Numbered(session, number)

    async def _heard(self, session_id: bytes, what: str, listener: NewsListener) -> None:
        """Pass news on; that a session ended is believed when it is so."""
        with self._guarded:
            if what != ENDED or await self._links.has_ended(session_id):
                listener.heard(session_id, what)

    async def _leave(self, session: Session) -> None:
        with self._guarded, TimeBudget():
            await self._sessions.leave(session)

    def _place(self, message: Message, caller: Caller) -> SessionLookupKey | None:
        """Where the session of a request is found, if not by its connection."""
        if message.method not in _OF_SESSIONS:
            return None
        return self._registry.place_of_call(caller, request_params.read(message).meta)


class _Numbered(NamedTuple):
    """The number that was reserved for a request, if any was."""

    session: Session | None = None
    number: int | None = None

    def release(self) -> None:
        """Release the request's number if it made no call."""
        if self.session is not None and self.number is not None:
            self.session.release(self.number)


class SessionStateSource(Protocol):
    """Who remembers how far sessions have come."""

    @property
    def predicting(self) -> NullPrediction:
        """Who embeds contexts."""
        ...

    def state(self, session: Session) -> SessionState:
        """How far a session has come."""
        ...


def build_sharing(
    state: SessionStatePort,
    secret: bytes,
    registry: SessionRegistry,
    tracking: TrackingService,
    filtering: SessionStateSource | None,
    *,
    link_seconds: float,
    idle_gap: float,
) -> SessionSharingService:
    """What the HTTP side asks; `filtering` is None when nothing is filtered.

    Connections without activity are kept for `link_seconds`, sessions at least as long and at least for `idle_gap`.
    """
    sealer = StateSigner(secret)
    session_seconds = max(idle_gap, link_seconds)
    if filtering is None:
        sessions = SharedSessions(state, sealer, registry, _unfiltered, _unread, session_seconds)
    else:

        async def read(session: Session, progress: SessionState, text: str) -> None:
            await filtering.predicting.set_context(session, progress, text)  # the predictor that is now in use

        sessions = SharedSessions(state, sealer, registry, filtering.state, read, session_seconds)
    tracking.on_closed(sessions.forget)
    return SessionSharingService(
        SharedConnections(state, sealer, sessions, link_seconds), sessions, registry, Broadcast(state, sealer)
    )


def _unfiltered(_: Session) -> None:
    """Nothing is remembered."""


async def _unread(_: Session, __: SessionState, ___: str) -> None:
    """Ignore contexts while nothing is predicted."""
