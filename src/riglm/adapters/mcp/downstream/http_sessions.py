"""The protocol sessions of the handshake era over HTTP."""

import asyncio
import functools
import gc
import logging
import secrets
import time
from typing import Final

from riglm.adapters.mcp.downstream.answer import HttpAnswer
from riglm.adapters.mcp.downstream.event_log import EventLog
from riglm.adapters.mcp.downstream.events import Events
from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import Caller, ClientChannel, Conversation, DownstreamPort
from riglm.ports.upstream import EventMark

_ID_BYTES: Final = 18
_MOST_CLOSING: Final = 32
_WORTH_COLLECTING: Final = 500
_log = logging.getLogger("riglm.downstream")


class HttpSession(ClientChannel):
    """One client's session: its conversation, its requests under way, and the streams that it keeps open.

    `events` is the stream for what belongs to no request, if the client has it open; `streams` are all that it has open
    in addition to those of its requests. `asked` holds the responses owed, each with the key of its request's id.
    """

    __slots__ = ("_log", "asked", "conversation", "events", "id", "is_open", "last_used", "principal", "streams")

    def __init__(self, proxy: DownstreamPort, caller: Caller, session_id: bytes = b"") -> None:
        """A session with an id that cannot be guessed, unless it has one already."""
        self.id = session_id or secrets.token_urlsafe(_ID_BYTES).encode()
        self.principal = caller.principal
        self.is_open = True
        self.events: Events | None = None
        self.streams: tuple[Events, ...] = ()
        self.asked: tuple[tuple[HttpAnswer, bytes], ...] = ()
        self._log: EventLog | None = None
        self.last_used = time.monotonic()
        self.conversation: Conversation = proxy.converse(caller if caller.handle else _shared(caller), self)

    @property
    def log(self) -> EventLog:
        """The events of its streams, as far as riglm keeps them itself."""
        if self._log is None:
            self._log = EventLog()
        return self._log

    def push(self, message: Message, event: EventMark | None = None) -> bool:
        """Send a message over the open stream."""
        if self.events is None or not self.events.is_open:
            return False
        self.events.continued(message, event)
        return True

    def ask(self, entry: tuple[HttpAnswer, bytes]) -> None:
        """An answer is owed."""
        self.asked += (entry,)

    def settle(self, entry: tuple[HttpAnswer, bytes]) -> None:
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
        if session is None or session.principal != caller.principal:
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
            while len(self._closing) >= _MOST_CLOSING:
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
