"""The protocol sessions of the handshake era over HTTP."""

import asyncio
import secrets
import time
from typing import Final

from riglm.adapters.mcp.downstream.answer import Events
from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import Caller, ClientChannel, Conversation, DownstreamPort
from riglm.ports.upstream import EventMark

_ID_BYTES: Final = 18


class HttpSession(ClientChannel):
    """One client's session: its conversation, and the stream that it keeps open for us, if any."""

    __slots__ = ("conversation", "events", "id", "in_flight", "last_used", "principal")

    def __init__(self, proxy: DownstreamPort, caller: Caller) -> None:
        """A session with an id that cannot be guessed."""
        self.id = secrets.token_urlsafe(_ID_BYTES).encode()
        self.principal = caller.principal
        self.events: Events | None = None
        self.in_flight = 0
        self.last_used = time.monotonic()
        self.conversation: Conversation = proxy.converse(caller, self)

    def push(self, message: Message, event: EventMark | None = None) -> bool:
        """Send a message over the open stream."""
        if self.events is None or not self.events.is_open:
            return False
        self.events.continued(message, event)
        return True

    @property
    def is_idle(self) -> bool:
        """Whether neither a request nor a stream is open."""
        return self.in_flight == 0 and self.events is None


class HttpSessions:
    """All open sessions; the longest idle one makes room when there are too many."""

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
        if len(self._open) >= self._most:
            idle = min((one for one in self._open.values() if one.is_idle), key=lambda one: one.last_used, default=None)
            if idle is None:
                return None
            self.discard(idle)
        session = HttpSession(self._proxy, caller)
        self._open[session.id] = session
        return session

    def find(self, session_id: bytes, caller: Caller) -> HttpSession | None:
        """The session with this id, if it is this caller's."""
        session = self._open.get(session_id)
        if session is None or session.principal != caller.principal:
            return None
        session.last_used = time.monotonic()
        return session

    def discard(self, session: HttpSession) -> None:
        """Close a session in the background."""
        if self._open.pop(session.id, None) is not None:
            if session.events is not None:
                session.events.ended()
            task = asyncio.get_running_loop().create_task(session.conversation.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def reap(self) -> None:
        """Close the sessions that nobody used for too long."""
        deadline = time.monotonic() - self._idle_seconds
        for session in [one for one in self._open.values() if one.is_idle and one.last_used < deadline]:
            self.discard(session)

    async def close(self) -> None:
        """Close all sessions."""
        for session in list(self._open.values()):
            self.discard(session)
        await asyncio.gather(*self._closing, return_exceptions=True)
