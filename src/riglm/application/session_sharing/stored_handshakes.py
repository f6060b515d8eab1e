"""What reopens an MCP session of the handshake era in another process: the messages with which its client opened it."""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from riglm.application.failing_open import FailingOpen
from riglm.application.session_sharing.signing import StateSigner
from riglm.domain import jsonrpc
from riglm.domain.errors import StateUnavailableError
from riglm.domain.jsonrpc import MalformedMessageError, Message
from riglm.ports.downstream import Caller, StoredHandshakes
from riglm.ports.session_state import SessionStatePort, TimeBudget

MAX_HANDSHAKE_LENGTH: Final = 1 << 16
"""Maximum bytes of an `initialize` that is stored. The session of a client that sends more stays with its process."""

MAX_STATE_REQUESTS: Final = 1_000
"""Maximum number of subscriptions stored per session. A client with more must subscribe again in another process."""

_STATE_REQUESTS: Final = frozenset({"logging/setLevel", "resources/subscribe"})
_TIMEOUT_SECONDS: Final = 1.0
_log: Final = logging.getLogger("riglm.state")


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """`owner` is a keyed hash, `messages` are those of the client by what they are about, `initialize` first."""

    owner: str
    messages: dict[str, str]


class SharedHandshakes(StoredHandshakes):
    """Keeps the handshakes of clients, and what they set on their servers since, in the shared state."""

    def __init__(self, state: SessionStatePort, signer: StateSigner, seconds: float) -> None:
        """Handshakes of sessions without activity are deleted after `seconds`."""
        self._state = state
        self._signer = signer
        self._seconds = seconds
        self._guarded = FailingOpen(_log, "a session could not be shared; it stays with this process, and")

    async def keep(self, session_id: bytes, caller: Caller, message: Message) -> None:
        if len(message.line) > MAX_HANDSHAKE_LENGTH:
            return
        with self._guarded, TimeBudget():
            line, subject = message.line.decode(), _subject(message)
            record = None if message.method == "initialize" else await self._read(session_id, caller)
            messages = {} if record is None else {key: each for key, each in record.messages.items() if key != subject}
            if message.method != "resources/unsubscribe" and len(messages) <= MAX_STATE_REQUESTS:
                messages[subject] = line
            if message.method != "initialize" and record is None:
                return
            name = self._name(session_id)
            body = msgspec.json.encode(_Record(owner=self._owner(caller), messages=messages))
            await self._state.keep(name, self._signer.seal(name, body), self._seconds)

    async def find(self, session_id: bytes, caller: Caller) -> Sequence[Message]:
        with self._guarded:
            record = None
            try:
                with TimeBudget():
                    record = await self._read(session_id, caller)
            except StateUnavailableError:
                if await self._state.returned(_TIMEOUT_SECONDS):
                    with TimeBudget():
                        record = await self._read(session_id, caller)
            return [] if record is None else [jsonrpc.decode(each.encode()) for each in record.messages.values()]
        return []

    async def delete(self, session_id: bytes) -> None:
        with self._guarded:
            await self._state.drop([self._name(session_id)])

    async def prolong(self, session_ids: Sequence[bytes]) -> None:
        with self._guarded:
            await self._state.take([self._name(each) for each in session_ids], self._seconds)

    async def _read(self, session_id: bytes, caller: Caller) -> _Record | None:
        name = self._name(session_id)
        [value] = await self._state.take([name], self._seconds)
        plain = self._signer.opened(name, value)
        if plain is None:
            return None
        try:
            record = msgspec.json.decode(plain, type=_Record)
            methods = [jsonrpc.decode(each.encode()).method for each in record.messages.values()]
        except (msgspec.MsgspecError, UnicodeError, MalformedMessageError):
            methods = []
        if methods[:1] != ["initialize"] or not _STATE_REQUESTS.issuperset(methods[1:]):
            self._signer.reject("it is no handshake")
            return None
        return record if record.owner == self._owner(caller) else None

    def _name(self, session_id: bytes) -> str:
        return self._signer.name("handshake", session_id)

    def _owner(self, caller: Caller) -> str:
        return self._signer.name("owner", caller.owner)


def _subject(message: Message) -> str:
    """Return what a message is about: a later one about the same replaces it."""
    if message.method in ("initialize", "logging/setLevel"):
        return message.method
    return f"resource {jsonrpc.text(jsonrpc.members(message.params).get('uri')) or ''}"
