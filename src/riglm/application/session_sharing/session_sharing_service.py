"""Lets several processes serve the requests of one session."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from riglm.application.failing_open import FailingOpen
from riglm.application.session_sharing.shared_sessions import SharedSessions
from riglm.application.session_sharing.signing import Broadcast, StateSigner
from riglm.application.session_sharing.stored_handshakes import SharedHandshakes
from riglm.application.sessions.registry import SessionRegistry
from riglm.application.sessions.session_index import SessionLookupKey
from riglm.application.tool_lists.selection import NullPrediction
from riglm.application.tracking.tracking_service import TrackingService
from riglm.domain.jsonrpc import Message
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.ports.session_state import SessionStatePort, TimeBudget

CHANGED_LISTS: Final = "shown"
"""The kind of messages that are about the lists of one client."""

_log: Final = logging.getLogger("riglm.state")


class ListChangeSubscriptions(Protocol):
    """The proxy, which knows which clients subscribe to changes of their list."""

    def share(self, notify: Callable[[str], None]) -> Callable[[str], None]:
        """Publish the clients whose list changed with `notify`; the returned function handles such messages."""
        ...


class SessionSharingService:
    """Shares sessions that are found by a key of the client or by its principal, and messages about changed lists."""

    def __init__(
        self, handshakes: SharedHandshakes, sessions: SharedSessions, registry: SessionRegistry, news: Broadcast
    ) -> None:
        self.handshakes: Final = handshakes
        self.news: Final = news
        self._sessions = sessions
        self._registry = registry
        self._tasks: set[asyncio.Task[None]] = set()
        self._guarded = FailingOpen(_log, "sharing a session failed; it stays with this process, and")

    async def begin(self) -> None:
        """Find out whether other processes have the same key."""
        await self._sessions.check_key()

    def visit(self, place: SessionLookupKey, base: Session | None, *, is_call: bool) -> "Visit":
        """Return what a request does to the shared session at a place; `base` is that of its connection, if any."""
        return Visit(self._sessions, self._registry, place, base, is_call=is_call)

    def share_changes(self, proxy: ListChangeSubscriptions) -> None:
        """Notify modern clients of lists that changed in other processes."""

        def notify(client_id: str) -> None:
            self._start(self.news.notify(CHANGED_LISTS, client_id, ""))

        on_change = proxy.share(notify)
        self.news.on(CHANGED_LISTS, lambda client_id, _: on_change(client_id))

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

    async def _leave(self, session: Session) -> None:
        with self._guarded, TimeBudget():
            await self._sessions.leave(session)


_guarded: Final = FailingOpen(_log, "sharing a session failed; it stays with this process, and")


class Visit:
    """One request in a shared session: it is read before, and what the request changed is published after."""

    def __init__(
        self,
        sessions: SharedSessions,
        registry: SessionRegistry,
        place: SessionLookupKey,
        base: Session | None,
        *,
        is_call: bool,
    ) -> None:
        self._sessions = sessions
        self._registry = registry
        self._place = place
        self._base = base
        self._is_call = is_call
        self._is_known = False
        self._numbered: Session | None = None
        self._number: int | None = None
        self._budget = TimeBudget()

    async def begin(self) -> None:
        """Bring the session up to date, and reserve the number of a call in it.

        It is reserved at once, of the session that was there before, or else of the one that is there then, or of the
        connection's.
        """
        with _guarded, self._budget:
            here = self._registry.at(self._place)
            self._is_known, _ = await asyncio.gather(self._sessions.arrive_at(self._place), self._reserve(here))
            there = self._registry.at(self._place) or self._base
            if self._is_call and there is not here:
                self._release()
                await self._reserve(there)

    async def end(self, reply: Message | None) -> Message | None:
        """Publish what the request changed, and return its reply."""
        with _guarded, self._budget:
            self._release()
            await self._sessions.leave_at(self._place, is_new=not self._is_known)
        return reply

    async def _reserve(self, session: Session | None) -> None:
        if self._is_call and session is not None:
            self._numbered, self._number = session, await self._sessions.reserve(session)

    def _release(self) -> None:
        """Release the number if the request made no call with it."""
        if self._numbered is not None and self._number is not None:
            self._numbered.release(self._number)


class SessionStateSource(Protocol):
    """Remembers the state of sessions."""

    @property
    def predicting(self) -> NullPrediction:
        """What embeds contexts."""
        ...

    def state(self, session: Session) -> SessionState:
        """Return the state of a session."""
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
    """Return the service; `filtering` is None if nothing is filtered.

    Handshakes without activity are kept for `link_seconds`, sessions at least as long and at least for `idle_gap`.
    """
    signer = StateSigner(secret)
    session_seconds = max(idle_gap, link_seconds)
    if filtering is None:
        sessions = SharedSessions(state, signer, registry, _no_state, _ignore_context, session_seconds)
    else:

        async def set_context(session: Session, progress: SessionState, text: str) -> None:
            await filtering.predicting.set_context(session, progress, text)  # the predictor that is now in use

        sessions = SharedSessions(state, signer, registry, filtering.state, set_context, session_seconds)
    tracking.on_closed(sessions.forget)
    handshakes = SharedHandshakes(state, signer, link_seconds)
    return SessionSharingService(handshakes, sessions, registry, Broadcast(state, signer))


def _no_state(_: Session) -> None:
    """Nothing is remembered."""


async def _ignore_context(_: Session, __: SessionState, ___: str) -> None:
    """Ignore contexts while nothing is predicted."""
