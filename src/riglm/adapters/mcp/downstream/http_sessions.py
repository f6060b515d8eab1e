"""The protocol sessions of the handshake era over HTTP."""

import asyncio
import contextlib
import functools
import gc
import logging
import secrets
import time
from typing import Final

from riglm.adapters.mcp.downstream.answer import Events, HttpResponse
from riglm.adapters.mcp.downstream.event_log import EventStore
from riglm.domain import jsonrpc
from riglm.domain.errors import SessionEndedError
from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import (
    ENDED,
    LISTENING,
    BeforeResponse,
    Caller,
    ClientChannel,
    DownstreamPort,
    HandshakeConnection,
    NewsListener,
    SessionSharing,
)
from riglm.ports.upstream import EventPosition

_ID_BYTES: Final = 18
_MAX_CLOSING: Final = 32
_WORTH_COLLECTING: Final = 500
_log = logging.getLogger("riglm.downstream")


class HttpSession(ClientChannel):
    """One client's session: its conversation, its requests under way, and the streams that it keeps open.

    `events` is the stream for what belongs to no request, if the client has it open; `streams` are all that it has open
    in addition to those of its requests. `asked` holds the responses owed, each with the key of its request's id.
    """

    __slots__ = ("_log", "asked", "conversation", "events", "id", "is_open", "last_used", "owner", "streams")

    def __init__(self, proxy: DownstreamPort, caller: Caller, session_id: bytes = b"") -> None:
        """A session with an id that cannot be guessed, unless it has one already."""
        self.id = session_id or secrets.token_urlsafe(_ID_BYTES).encode()
        self.owner = caller.owner
        self.is_open = True
        self.events: Events | None = None
        self.streams: tuple[Events, ...] = ()
        self.asked: tuple[tuple[HttpResponse, bytes], ...] = ()
        self._log: EventStore | None = None
        self.last_used = time.monotonic()
        self.conversation: HandshakeConnection = proxy.converse(caller if caller.handle else _shared(caller), self)

    @property
    def log(self) -> EventStore:
        """The events of its streams that riglm stores itself."""
        if self._log is None:
            self._log = EventStore()
        return self._log

    def push(self, message: Message, event: EventPosition | None = None) -> bool:
        if self.events is None or not self.events.is_open:
            return False
        self.events.continued(message, event)
        return True

    def ask(self, entry: tuple[HttpResponse, bytes]) -> None:
        """An answer is owed."""
        self.asked += (entry,)

    def settle(self, entry: tuple[HttpResponse, bytes]) -> None:
        """An answer is owed no more."""
        self.asked = () if len(self.asked) == 1 else tuple(one for one in self.asked if one is not entry)

    @property
    def is_idle(self) -> bool:
        """Whether neither a request nor a stream is open."""
        return not self.asked and not self.streams

    def end(self) -> None:
        """Release all waiting callers."""
        self.is_open = False
        for events in self.streams:
            events.ended()
        for answer, _ in self.asked:
            answer.interrupted()


class HttpSessions:
    """All open sessions; the longest idle one is closed when there are too many."""

    def __init__(self, proxy: DownstreamPort, *, idle_seconds: float, most: int) -> None:
        """No sessions yet."""
        self._proxy = proxy
        self._idle_seconds = idle_seconds
        self._most = most
        self._open: dict[bytes, HttpSession] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, caller: Caller) -> HttpSession | None:
        """A new session; None when there are too many and all are in use."""
        if not self._has_room():
            return None
        session = self._made(caller)
        self._open[session.id] = session
        return session

    def find(self, session_id: bytes, caller: Caller) -> HttpSession | None:
        """The session with this id, if it is this caller's."""
        session = self._open.get(session_id)
        if session is None or session.owner != caller.owner:
            return None
        session.last_used = time.monotonic()
        return session

    async def end(self, session: HttpSession) -> None:
        """The client ended its session."""
        self.discard(session)

    def discard(self, session: HttpSession) -> None:
        """Close a session in the background; requests in flight get no response."""
        if self._open.pop(session.id, None) is not None:
            task = asyncio.get_running_loop().create_task(_close(session))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def reap(self) -> None:
        """Close the idle sessions, a few at a time: each may have to notify its upstream."""
        deadline = time.monotonic() - self._idle_seconds
        idle = [one for one in self._open.values() if one.is_idle and one.last_used < deadline]
        for session in idle:
            while len(self._closing) >= _MAX_CLOSING:
                await asyncio.wait(self._closing, return_when=asyncio.FIRST_COMPLETED)
            if session.is_idle and session.last_used < deadline:
                await self._expire(session)
        if len(idle) >= _WORTH_COLLECTING:
            await asyncio.gather(*self._closing)
            gc.collect()  # sessions and their links hold each other, and a quiet process would keep them for long

    def _has_room(self) -> bool:
        """Whether there may be one more session, perhaps in the place of the longest idle one."""
        if len(self._open) < self._most:
            return True
        idle = min((one for one in self._open.values() if one.is_idle), key=lambda one: one.last_used, default=None)
        if idle is not None:
            self._make_room(idle)
        return idle is not None

    def _made(self, caller: Caller) -> HttpSession:
        return HttpSession(self._proxy, caller)

    def _make_room(self, session: HttpSession) -> None:
        """Close a session because there are too many."""
        self.discard(session)

    async def _expire(self, session: HttpSession) -> None:
        """Close a session because it was idle for too long."""
        self.discard(session)

    async def close(self) -> None:
        """Close all sessions."""
        for session in list(self._open.values()):
            self.discard(session)
        await asyncio.gather(*self._closing)


@functools.lru_cache(maxsize=64)
def _shared(caller: Caller) -> Caller:
    """One object for equal callers: there may be very many sessions from a few addresses."""
    return caller


async def _close(session: HttpSession) -> None:
    session.end()
    try:
        await session.conversation.close()
    except Exception:  # noqa: BLE001  # one session must not keep the others open
        _log.exception("closing a session failed")


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

    def push(self, message: Message, event: EventPosition | None = None) -> bool:
        pushed = super().push(message, event)
        if message.method in _CHANGES and not self._hears:
            self._sharing.notify(self.id, message.method)
            if not pushed:
                self._untold |= {message.method}
        return pushed

    def hear(self, news: str) -> None:
        """Another process reports that a list changed, or that it has the client's stream."""
        if news == LISTENING:
            untold, self._untold = self._untold, frozenset()
            for method in sorted(untold):
                self._sharing.notify(self.id, method)
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

    async def opening(self, session: HttpSession, handshake: Message, caller: Caller) -> BeforeResponse:
        """Handle an `initialize` request before its response is sent."""
        await self._sharing.opening(caller)

        async def part(answer: Message) -> None:
            if answer.result:
                await self._sharing.opened(session.id, caller, handshake, session.conversation)

        return part

    async def arrives(self, session: HttpSession, message: Message, caller: Caller) -> BeforeResponse | None:
        """Bring a session up to date before it takes a message.

        Raises:
            SessionEndedError: its client ended it at another process.
        """
        try:
            return await self._sharing.arrives(session.id, message, caller, session.conversation)
        except SessionEndedError:
            self.detach(session)
            raise

    def listening(self, session: HttpSession) -> None:
        """The client of a session has its stream open here."""
        self._sharing.notify(session.id, LISTENING)

    def heard(self, session_id: bytes, news: str) -> None:
        session = self._open.get(session_id)
        if isinstance(session, SharedHttpSession):
            if news == ENDED:
                self.detach(session)
            else:
                session.hear(news)

    async def end(self, session: HttpSession) -> None:
        await self._sharing.ended(session.id)
        self.discard(session)

    def detach(self, session: HttpSession) -> None:
        """Leave a session to the other processes."""
        session.conversation.detach()
        self.discard(session)

    def discard(self, session: HttpSession) -> None:
        self._sharing.left(session.id)
        super().discard(session)

    async def reap(self) -> None:
        now = time.monotonic()
        if now - self._prolonged_at > self._idle_seconds / _PROLONGED_PARTS:
            self._prolonged_at = now
            await self._sharing.lives([one.id for one in self._open.values() if not one.is_idle], longer=True)
        await super().reap()

    async def close(self) -> None:
        for session in list(self._open.values()):
            self.detach(session)
        await super().close()

    def _made(self, caller: Caller) -> HttpSession:
        return SharedHttpSession(self._proxy, self._sharing, caller)

    def _make_room(self, session: HttpSession) -> None:
        self.detach(session)

    async def _expire(self, session: HttpSession) -> None:
        [lives] = await self._sharing.lives([session.id], longer=False)
        if lives:
            self.detach(session)
        else:
            self.discard(session)

    async def _take_over(self, session_id: bytes, caller: Caller, *, introduce: bool) -> HttpSession | None:
        handoff = await self._sharing.find(session_id, caller)
        if handoff is None or session_id in self._open:
            return None
        if not self._has_room():
            self._sharing.left(session_id)
            return None
        session = SharedHttpSession(self._proxy, self._sharing, caller, session_id)
        if not await self._sharing.resume(session_id, handoff, session.conversation, introduce=introduce):
            session.conversation.detach()
            self._sharing.left(session_id)
            with contextlib.suppress(Exception):
                await session.conversation.close()
            return None
        self._open[session_id] = session
        return session
