"""Client connections of the handshake era, with which any process can go on."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from riglm.application.session_sharing.shared_sessions import SharedSessions
from riglm.application.session_sharing.signing import StateSigner
from riglm.domain import jsonrpc
from riglm.domain.errors import StateUnavailableError
from riglm.domain.jsonrpc import MalformedMessageError, Message
from riglm.domain.session import Session
from riglm.ports.downstream import Caller, ClientResponseSink, ConnectionHandoff, HandshakeConnection
from riglm.ports.session_state import SessionStatePort, TimeBudget
from riglm.ports.upstream import EventPosition

REPEATED: Final = frozenset({"logging/setLevel", "resources/subscribe"})
"""State requests of a client that must be repeated to a server process that replaces the first."""

MAX_PROBLEMS: Final = 1_000
"""Maximum number of state requests stored per connection. A client with more must resubscribe after it moves."""


class ConnectionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a connection.

    `owner` is a keyed hash. `handshake` and `state_requests` are raw JSON of the client, `tickets` are the resume
    tokens by server. A record that has `ended` is kept for a while, so that no process resumes it.
    """

    owner: str
    session: UUID
    handshake: str
    state_requests: dict[str, str] = {}
    tickets: dict[str, bytes] = {}
    ended: bool = False

    def encoded(self) -> bytes:
        """As bytes."""
        return msgspec.json.encode(self)

    def noted(self, asked: Message) -> "ConnectionRecord":
        """Return the record with a state request that a server has accepted."""
        if asked.method not in REPEATED and asked.method != "resources/unsubscribe":
            return self
        subject = jsonrpc.text(jsonrpc.members(asked.params).get("uri")) or ""
        state_requests = {name: line for name, line in self.state_requests.items() if name != subject}
        if asked.method in REPEATED and len(state_requests) < MAX_PROBLEMS:
            state_requests[subject] = asked.line.decode()
        return msgspec.structs.replace(self, state_requests=state_requests)

    def ticketed(self, tickets: Mapping[str, bytes]) -> "ConnectionRecord":
        """Return the record with the resume tokens that servers sent most recently."""
        return msgspec.structs.replace(self, tickets={**self.tickets, **tickets})


def decoded(plain: bytes) -> ConnectionRecord | None:
    """The record that was encoded; None when it is none that riglm would write."""
    try:
        record = msgspec.json.decode(plain, type=ConnectionRecord)
        messages = [message_of(record.handshake), *map(message_of, record.state_requests.values())]
    except (msgspec.MsgspecError, UnicodeError, MalformedMessageError):
        return None
    named = [message.method for message in messages]
    if named[:1] != ["initialize"] or not REPEATED.issuperset(filter(None, named[1:])) or None in named:
        return None
    return record


def message_of(line: str) -> Message:
    """A message that was kept."""
    return jsonrpc.decode(line.encode())


MAX_HANDSHAKE_LENGTH: Final = 1 << 16
"""A client that says more of itself stays with its process."""

_TIMEOUT_SECONDS: Final = 1.0
_RESUMING_SECONDS: Final = 60.0
_ENDED_SECONDS: Final = 600.0
_ATTEMPTS: Final = 4
_AGAIN: Final = b'"riglm-again"'
_log: Final = logging.getLogger("riglm.state")


class SharedConnections:
    """Stores a record of each connection, and restores connections from their records."""

    def __init__(self, state: SessionStatePort, sealer: StateSigner, sessions: SharedSessions, seconds: float) -> None:
        """Records of connections without activity are deleted after `seconds`."""
        self._state = state
        self._sealer = sealer
        self._sessions = sessions
        self._seconds = seconds
        self._known: dict[bytes, ConnectionRecord] = {}
        self._values: dict[bytes, tuple[bytes, ConnectionRecord]] = {}
        """What was last read of each, so that what has not changed need not be opened again."""

    def name(self, session_id: bytes) -> str:
        """The key of a connection."""
        return self._sealer.name("link", session_id)

    async def open(
        self, session_id: bytes, caller: Caller, handshake: Message, conversation: HandshakeConnection
    ) -> None:
        """A client was let in."""
        if len(handshake.line) > MAX_HANDSHAKE_LENGTH:
            _log.warning("a client says too much of itself for other processes to go on with it")
            return
        session = conversation.session
        record = ConnectionRecord(
            owner=self._owner(caller),
            session=session.id,
            handshake=handshake.line.decode(),
            tickets=dict(conversation.tickets),
        )
        await asyncio.gather(self._keep(session_id, record), self._sessions.leave(session))

    async def find(self, session_id: bytes, caller: Caller) -> ConnectionHandoff | None:
        """What is needed to go on with a caller's connection here, which is worth to wait a moment for."""
        try:
            with TimeBudget():
                return await self._find(session_id, caller)
        except StateUnavailableError:
            if not await self._state.returned(_TIMEOUT_SECONDS):
                return None
        try:
            with TimeBudget():
                return await self._find(session_id, caller)
        except StateUnavailableError:
            return None

    async def resume(
        self, session_id: bytes, handoff: ConnectionHandoff, conversation: HandshakeConnection, *, introduce: bool
    ) -> bool:
        """Restore a connection in this process. Returns False if a server refuses."""
        if not conversation.adopt(handoff) and introduce:
            greeted = await _asked(conversation, handoff.handshake)
            if greeted is None or not greeted.result:
                return False
            conversation.received(jsonrpc.notification("notifications/initialized"), _Heard())
            for message in handoff.state_requests:
                await _asked(conversation, message)
        await self.note_tickets(session_id, conversation)
        return True

    async def refresh(self, session_id: bytes, conversation: HandshakeConnection) -> bool:
        """Bring a conversation up to date; whether the client ended its connection at another process."""
        known = self._known.get(session_id)
        if known is None:
            return False
        try:
            record = await self._read(session_id)
        except StateUnavailableError:
            return False
        if record is None:
            await self._keep(session_id, known)  # the state was emptied, or what it holds is none of ours
        elif record.ended:
            return True
        elif record != known:
            self._known[session_id] = record
            await self._catch_up(conversation, known, record)
        return False

    async def has_ended(self, session_id: bytes) -> bool:
        """Whether the client ended its connection."""
        try:
            record = await self._read(session_id)
        except StateUnavailableError:
            return False
        return record is not None and record.ended

    async def note(self, session_id: bytes, asked: Message, answer: Message, conversation: HandshakeConnection) -> None:
        """Keep what a request changed."""
        known = self._known.get(session_id)
        if known is not None and answer.result:
            await self._change(session_id, lambda record: record.noted(asked))
        await self.note_tickets(session_id, conversation)

    async def note_tickets(self, session_id: bytes, conversation: HandshakeConnection) -> None:
        """Keep the sessions of the servers, if they are others now."""
        tickets = dict(conversation.tickets)
        if tickets:
            await self._change(session_id, lambda record: record.ticketed(tickets))

    async def end(self, session_id: bytes) -> None:
        """No process goes on with a connection."""
        known = self._known.pop(session_id, None)
        if known is not None:
            name = self.name(session_id)
            ended = msgspec.structs.replace(known, ended=True, state_requests={}, tickets={})
            await self._state.keep(name, self._sealer.seal(name, ended.encoded()), _ENDED_SECONDS)

    async def lives(self, session_ids: Sequence[bytes], *, longer: bool) -> list[bool]:
        """Return the connections that are stored, or all of them if the state is unavailable."""
        names = [self.name(session_id) for session_id in session_ids]
        try:
            if longer:
                return [value is not None for value in await self._state.take(names, self._seconds)]
            return await self._state.there(names)
        except StateUnavailableError:
            return [True] * len(names)

    def forget(self, session_id: bytes) -> None:
        """A connection is not kept here any more."""
        self._known.pop(session_id, None)
        self._values.pop(session_id, None)

    async def _find(self, session_id: bytes, caller: Caller) -> ConnectionHandoff | None:
        record = await self._read(session_id)
        if record is None or record.ended or record.owner != self._owner(caller):
            return None
        found = await self._sessions.fetch(record.session)
        if found is None:
            return None
        self._known[session_id] = record
        return _carried(record, self._sessions.adopted(found))

    async def _catch_up(
        self, conversation: HandshakeConnection, known: ConnectionRecord, record: ConnectionRecord
    ) -> None:
        """Repeat the state requests between the `known` record and the stored one."""
        if not conversation.adopt(_carried(record, conversation.session)):
            for name, line in record.state_requests.items():
                if known.state_requests.get(name) != line:
                    await _asked(conversation, message_of(line))

    async def _read(self, session_id: bytes) -> ConnectionRecord | None:
        name = self.name(session_id)
        [value] = await self._state.take([name], self._seconds)
        known = self._values.get(session_id)
        if known is not None and value == known[0]:
            return known[1]
        record = self._opened(name, value)
        if record is not None and value is not None and session_id in self._known:
            self._values[session_id] = (value, record)
        return record

    def _opened(self, name: str, value: bytes | None) -> ConnectionRecord | None:
        plain = self._sealer.opened(name, value)
        record = None if plain is None else decoded(plain)
        if plain is not None and record is None:
            self._sealer.reject("it is no connection")
        return record

    async def _change(self, session_id: bytes, change: Callable[[ConnectionRecord], ConnectionRecord]) -> None:
        """Merge a change into the stored record, unless the client ended the connection in another process.

        What they made is not known here by that: the next request brings the conversation up to date.
        """
        known = self._known.get(session_id)
        if known is None or (mine := change(known)) == known:
            return
        self._known[session_id] = mine
        name, changed = self.name(session_id), mine
        before = self._sealer.seal(name, known.encoded())
        for _ in range(_ATTEMPTS):
            value = self._sealer.seal(name, changed.encoded())
            try:
                found = await self._state.swap(name, before, value, self._seconds)
            except StateUnavailableError:
                break
            theirs = None if found is None else self._opened(name, found)
            if found is None or found == value or (theirs is not None and theirs.ended):
                return
            before, changed = found, mine if theirs is None else change(theirs)
        if session_id in self._known:
            await self._keep(session_id, mine)

    async def _keep(self, session_id: bytes, record: ConnectionRecord) -> None:
        self._known[session_id] = record
        name = self.name(session_id)
        await self._state.keep(name, self._sealer.seal(name, record.encoded()), self._seconds)

    def _owner(self, caller: Caller) -> str:
        return self._sealer.name("owner", caller.owner)


class _Heard(ClientResponseSink):
    """Takes the answer to what riglm says again in a client's name."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        pass

    def primed(self, event: EventPosition) -> None:
        pass

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        if not self.answer.done():
            self.answer.set_result(message)

    def interrupted(self) -> None:
        if not self.answer.done():
            self.answer.set_result(None)


async def _asked(conversation: HandshakeConnection, message: Message) -> Message | None:
    """The answer to a request that is made again, None when there is none in time."""
    heard = _Heard()
    conversation.received(message.replace(id=_AGAIN), heard)
    try:
        async with asyncio.timeout(_RESUMING_SECONDS):
            return await heard.answer
    except TimeoutError:
        return None


def _carried(record: ConnectionRecord, session: Session) -> ConnectionHandoff:
    return ConnectionHandoff(
        session=session,
        handshake=message_of(record.handshake),
        state_requests=tuple(map(message_of, record.state_requests.values())),
        tickets=record.tickets,
    )
