"""Protocol sessions of the handshake era that several riglm processes serve together."""

import asyncio
import contextlib
import time
from typing import Final

from riglm.adapters.mcp.downstream.http_sessions import HttpSession, HttpSessions
from riglm.domain import jsonrpc
from riglm.domain.errors import SessionEnded
from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import (
    ENDED,
    LISTENING,
    Caller,
    DownstreamPort,
    NewsListener,
    Parting,
    SessionSharing,
)
from riglm.ports.upstream import EventMark

_CHANGES: Final = frozenset(f"notifications/{name}/list_changed" for name in ("tools", "prompts", "resources"))
_PROLONGED_PARTS: Final = 4
"""How often sessions in use are prolonged within the time for which they are kept."""


class SharedHttpSession(HttpSession):
    """A session whose client may have its stream open at another process, which is then notified of changed lists."""

    __slots__ = ("_hears", "_sharing", "_untold")

    def __init__(self, proxy: DownstreamPort, sharing: SessionSharing, caller: Caller, session_id: bytes = b"") -> None:
        self._sharing = sharing
        self._hears = False
        self._untold: frozenset[str] = frozenset()
        super().__init__(proxy, caller, session_id)

    def push(self, message: Message, event: EventMark | None = None) -> bool:
        """Send a message over the open stream, and let other processes know if a list changed."""
        pushed = super().push(message, event)
        if message.method in _CHANGES and not self._hears:
            self._sharing.tell(self.id, message.method)
            if not pushed:
                self._untold |= {message.method}
        return pushed

    def hear(self, news: str) -> None:
        """Another process reports that a list changed, or that it has the client's stream."""
        if news == LISTENING:
            untold, self._untold = self._untold, frozenset()
            for method in sorted(untold):
                self._sharing.tell(self.id, method)
        elif news in _CHANGES:
            self._hears = True
            try:
                self.conversation.heard(jsonrpc.notification(news))
            finally:
                self._hears = False


class SharedHttpSessions(HttpSessions, NewsListener):
    """The sessions that this process has served, any of which another process may serve next."""

    def __init__(self, proxy: DownstreamPort, sharing: SessionSharing, *, idle_seconds: float, most: int) -> None:
        super().__init__(proxy, idle_seconds=idle_seconds, most=most)
        self._sharing = sharing
        self._arriving: dict[bytes, asyncio.Task[HttpSession | None]] = {}
        self._prolonged_at = time.monotonic()
        sharing.listen(self)

    async def take_over(self, session_id: bytes, caller: Caller, *, to_end: bool = False) -> HttpSession | None:
        """Go on with a caller's session that another process opened, be it only `to_end` it; None if there is none."""
        arriving = self._arriving.get(session_id)
        if arriving is None:
            taking = self._take_over(session_id, caller, introduce=not to_end)
            arriving = asyncio.get_running_loop().create_task(taking)
            self._arriving[session_id] = arriving
            arriving.add_done_callback(lambda _: self._arriving.pop(session_id, None))
        await asyncio.shield(arriving)
        return self.find(session_id, caller)

    async def opening(self, session: HttpSession, handshake: Message, caller: Caller) -> Parting:
        """Handle an `initialize` request before its response is sent."""
        await self._sharing.opening(caller)

        async def part(answer: Message) -> None:
            if answer.result:
                await self._sharing.opened(session.id, caller, handshake, session.conversation)

        return part

    async def arrives(self, session: HttpSession, message: Message, caller: Caller) -> Parting | None:
        """Bring a session up to date before it takes a message.

        Raises:
            SessionEnded: its client ended it at another process.
        """
        try:
            return await self._sharing.arrives(session.id, message, caller, session.conversation)
        except SessionEnded:
            self.let_go(session)
            raise

    def listening(self, session: HttpSession) -> None:
        """The client of a session has its stream open here."""
        self._sharing.tell(session.id, LISTENING)

    def heard(self, session_id: bytes, news: str) -> None:
        """Another process says something of a session that is kept here."""
        session = self._open.get(session_id)
        if isinstance(session, SharedHttpSession):
            if news == ENDED:
                self.let_go(session)
            else:
                session.hear(news)

    async def end(self, session: HttpSession) -> None:
        """The client ended its session, for all processes."""
        await self._sharing.ended(session.id)
        self.discard(session)

    def let_go(self, session: HttpSession) -> None:
        """Leave a session to the other processes."""
        session.conversation.let_go()
        self.discard(session)

    def discard(self, session: HttpSession) -> None:
        """Close a session here."""
        self._sharing.left(session.id)
        super().discard(session)

    async def reap(self) -> None:
        """Close the idle sessions, and prolong all that are in use."""
        now = time.monotonic()
        if now - self._prolonged_at > self._idle_seconds / _PROLONGED_PARTS:
            self._prolonged_at = now
            await self._sharing.lives([one.id for one in self._open.values() if not one.is_idle], longer=True)
        await super().reap()

    async def close(self) -> None:
        """Leave all sessions to the other processes."""
        for session in list(self._open.values()):
            self.let_go(session)
        await super().close()

    def _made(self, caller: Caller) -> HttpSession:
        return SharedHttpSession(self._proxy, self._sharing, caller)

    def _make_room(self, session: HttpSession) -> None:
        self.let_go(session)

    async def _expire(self, session: HttpSession) -> None:
        """Close a session, and end it if no other process has used it either."""
        [lives] = await self._sharing.lives([session.id], longer=False)
        if lives:
            self.let_go(session)
        else:
            self.discard(session)

    async def _take_over(self, session_id: bytes, caller: Caller, *, introduce: bool) -> HttpSession | None:
        carried = await self._sharing.find(session_id, caller)
        if carried is None or session_id in self._open:
            return None
        if not self._has_room():
            self._sharing.left(session_id)
            return None
        session = SharedHttpSession(self._proxy, self._sharing, caller, session_id)
        if not await self._sharing.resume(session_id, carried, session.conversation, introduce=introduce):
            session.conversation.let_go()
            self._sharing.left(session_id)
            with contextlib.suppress(Exception):
                await session.conversation.close()
            return None
        self._open[session_id] = session
        return session
