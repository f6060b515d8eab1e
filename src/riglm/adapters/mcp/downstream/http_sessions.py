"""The protocol sessions of the handshake era over HTTP."""

import asyncio
import functools
import gc
import logging
import secrets
import time
from typing import Final

from riglm.adapters.mcp.downstream.answer import Events, JsonOrSseResponse
from riglm.adapters.mcp.downstream.event_log import EventLog, LoggedStream
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import (
    Caller,
    ClientChannel,
    ClientConnection,
    ClientResponseSink,
    DownstreamPort,
    StoredHandshakes,
)

_REPLAY_ID: Final = b'"riglm-again"'
_REPLAY_SECONDS: Final = 60.0
_PROLONGED_PARTS: Final = 4
"""How often stored sessions in use are prolonged within the time for which they are kept."""

_ID_BYTES: Final = 18
_MAX_CLOSING: Final = 32
_WORTH_COLLECTING: Final = 500
_log = logging.getLogger("riglm.downstream")


class HttpSession(ClientChannel):
    """One client's session: its connection, its requests in flight, and the streams that it keeps open.

    `server_stream` is the stream for server messages, and `streams` are all that the client has open in addition to
    those of its requests. `asked` holds the responses owed, each with the key of its request's id.
    """

    __slots__ = ("_log", "asked", "connection", "id", "is_open", "last_used", "owner", "server_stream", "streams")

    def __init__(self, proxy: DownstreamPort, caller: Caller, session_id: bytes) -> None:
        self.id = session_id
        self.owner = caller.owner
        self.is_open = True
        self.server_stream: LoggedStream | None = None
        self.streams: tuple[Events, ...] = ()
        self.asked: tuple[tuple[JsonOrSseResponse, bytes], ...] = ()
        self._log: EventLog | None = None
        self.last_used = time.monotonic()
        self.connection: ClientConnection = proxy.connect(caller if caller.handle else _shared(caller), self)

    @property
    def log(self) -> EventLog:
        """The events of its streams."""
        if self._log is None:
            self._log = EventLog()
        return self._log

    def push(self, message: Message) -> bool:
        stream = self.server_stream
        if stream is None or stream.reader is None or not stream.reader.is_open:
            return False
        stream.add(message)
        return True

    def ask(self, entry: tuple[JsonOrSseResponse, bytes]) -> None:
        """An answer is owed."""
        self.asked += (entry,)

    def settle(self, entry: tuple[JsonOrSseResponse, bytes]) -> None:
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

    def __init__(
        self,
        proxy: DownstreamPort,
        process: str,
        *,
        idle_seconds: float,
        most: int,
        handshakes: StoredHandshakes | None = None,
    ) -> None:
        """Ids begin with `process`. `handshakes` are stored for other processes, which reopen unknown sessions."""
        self._proxy = proxy
        self._process = process
        self._handshakes = handshakes
        self._reopening: dict[bytes, asyncio.Task[HttpSession | None]] = {}
        self._prolonged_at = time.monotonic()
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
        session = HttpSession(self._proxy, caller, f"{self._process}.{secrets.token_urlsafe(_ID_BYTES)}".encode())
        self._open[session.id] = session
        return session

    def find(self, session_id: bytes, caller: Caller) -> HttpSession | None:
        """The session with this id, if it is this caller's."""
        session = self._open.get(session_id)
        if session is None or session.owner != caller.owner:
            return None
        session.last_used = time.monotonic()
        return session

    async def reopen(self, session_id: bytes, caller: Caller) -> HttpSession | None:
        """Return a caller's session that another process opened, opened again here; None if it is unknown."""
        if self._handshakes is None:
            return None
        reopening = self._reopening.get(session_id)
        if reopening is None:
            reopening = asyncio.get_running_loop().create_task(self._replay(session_id, caller, self._handshakes))
            self._reopening[session_id] = reopening
            reopening.add_done_callback(lambda _: self._reopening.pop(session_id, None))
        await asyncio.shield(reopening)
        return self.find(session_id, caller)

    async def keep(self, session: HttpSession, message: Message, caller: Caller) -> None:
        """Store a message of a client that another process would have to repeat."""
        if self._handshakes is not None:
            await self._handshakes.keep(session.id, caller, message)

    async def end(self, session_id: bytes, caller: Caller) -> bool:
        """The client ended its session; False if there is none."""
        session = self.find(session_id, caller)
        is_known = session is not None
        if self._handshakes is not None:
            is_known = is_known or bool(await self._handshakes.find(session_id, caller))
            if is_known:
                await self._handshakes.delete(session_id)
        if session is not None:
            self.discard(session)
        return is_known

    def discard(self, session: HttpSession) -> None:
        """Close a session in the background; requests in flight get no response."""
        if self._open.pop(session.id, None) is not None:
            task = asyncio.get_running_loop().create_task(_close(session))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def reap(self) -> None:
        """Close the idle sessions, a few at a time: each may have to notify its upstream."""
        now = time.monotonic()
        if self._handshakes is not None and now - self._prolonged_at > self._idle_seconds / _PROLONGED_PARTS:
            self._prolonged_at = now
            await self._handshakes.prolong(list(self._open))
        deadline = time.monotonic() - self._idle_seconds
        idle = [one for one in self._open.values() if one.is_idle and one.last_used < deadline]
        for session in idle:
            while len(self._closing) >= _MAX_CLOSING:
                await asyncio.wait(self._closing, return_when=asyncio.FIRST_COMPLETED)
            if session.is_idle and session.last_used < deadline:
                self.discard(session)
        if len(idle) >= _WORTH_COLLECTING:
            await asyncio.gather(*self._closing)
            gc.collect()  # sessions and their links hold each other, and a quiet process would keep them for long

    def _has_room(self) -> bool:
        """Whether there may be one more session, perhaps in the place of the longest idle one."""
        if len(self._open) < self._most:
            return True
        idle = min((one for one in self._open.values() if one.is_idle), key=lambda one: one.last_used, default=None)
        if idle is not None:
            self.discard(idle)
        return idle is not None

    async def _replay(self, session_id: bytes, caller: Caller, handshakes: StoredHandshakes) -> HttpSession | None:
        """Open the servers of a session again, with the client's own messages."""
        messages = await handshakes.find(session_id, caller)
        if not messages or session_id in self._open or not self._has_room():
            return None
        session = HttpSession(self._proxy, caller, session_id)
        for message in messages:
            reply = _Reply()
            session.connection.receive(message.replace(id=_REPLAY_ID), reply)
            try:
                response = await asyncio.wait_for(reply.response, _REPLAY_SECONDS)
            except TimeoutError:
                response = jsonrpc.error(None, jsonrpc.REQUEST_TIMEOUT, "no response in time")
            if message.method == "initialize":
                if response.error:
                    await session.connection.close()
                    return None
                session.connection.receive(jsonrpc.notification("notifications/initialized"))
        self._open[session_id] = session
        _log.info("reopened a session of another process")
        return session

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
        await session.connection.close()
    except Exception:  # noqa: BLE001  # one session must not keep the others open
        _log.exception("closing a session failed")


class _Reply(ClientResponseSink):
    """Takes the response to a message that riglm repeats."""

    def __init__(self) -> None:
        self.response: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def related(self, message: Message) -> None:
        """Leave it out: the client waits for nothing."""

    def replied(self, message: Message, status: int = 200) -> None:
        if not self.response.done():
            self.response.set_result(message)
