"""Encryption and signing of values stored outside riglm: without the secret they can be neither read nor forged.

A value is sealed for its name: taken from under one key and put under another it is as good as none.
"""

import hmac
import logging
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID, uuid4

import msgspec

from riglm.domain.errors import StateUnavailableError
from riglm.ports.session_state import SessionStatePort

MAX: Final = 4 << 20
"""A value of more bytes is none of riglm's."""

_MARK: Final = b"r1"
_SEAL_BYTES: Final = 16
_NAME_DIGITS: Final = 32
_log: Final = logging.getLogger("riglm.state")


class StateSigner:
    """Names and seals, both under one secret."""

    def __init__(self, secret: bytes) -> None:
        """`secret` is what all processes have in common."""
        self._naming = hmac.digest(secret, b"names", "sha256")
        self._sealing = hmac.digest(secret, b"values", "sha256")
        self.rejected = 0
        """How many values were ignored."""

    def name(self, kind: str, *parts: str | bytes) -> str:
        """Return the storage key of an item; it reveals nothing about the item."""
        encoded = [part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass") for part in parts]
        framed = b"".join(len(part).to_bytes(8) + part for part in (kind.encode(), *encoded))
        return f"{kind}:{hmac.digest(self._naming, framed, 'sha256').hex()[:_NAME_DIGITS]}"

    def seal(self, name: str, plain: bytes) -> bytes:
        """A value to be kept under this name."""
        packed = zlib.compress(plain, 1)
        return _MARK + self._seal(name, packed) + packed

    def opened(self, name: str, value: bytes | None) -> bytes | None:
        """What a value says; None when there is none, or it was not sealed with our secret for this name."""
        if value is None:
            return None
        seal, packed = value[len(_MARK) : len(_MARK) + _SEAL_BYTES], value[len(_MARK) + _SEAL_BYTES :]
        if not value.startswith(_MARK) or not hmac.compare_digest(seal, self._seal(name, packed)):
            self.reject("it was not sealed with the same key: give all processes the same privacy.key")
            return None
        reader = zlib.decompressobj()
        try:
            plain = reader.decompress(packed, MAX)
        except zlib.error:
            plain = b""
        if not reader.eof:
            self.reject("it is too long or cut off")
            return None
        return plain

    def reject(self, reason: str) -> None:
        """Count a value that is ignored, and log the first."""
        self.rejected += 1
        if self.rejected == 1:
            _log.warning("ignored a value of shared state; this is logged once", extra={"reason": reason})

    def _seal(self, name: str, packed: bytes) -> bytes:
        return hmac.digest(self._sealing, name.encode() + b"\0" + packed, "sha256")[:_SEAL_BYTES]


MAX_WRITERS: Final = 16
"""Maximum number of processes per value. A process that writes less often may count a lost change twice."""

_MAX_NUMBER_LENGTH: Final = 16

WriteVersions = Mapping[str, int]
"""The number of the last change of each process, the latest process last."""


def changed_by(writers: WriteVersions, name: str, number: int) -> WriteVersions:
    """The writers after one more change, of the process that is called so."""
    others = [(other, known) for other, known in writers.items() if other != name]
    return dict([*others, (name, number)][-MAX_WRITERS:])


def head(revision: int, writers: WriteVersions) -> bytes:
    """Return a line, without newline, that contains the version of a value and its writer."""
    return " ".join([str(revision), *(f"{name}={number}" for name, number in writers.items())]).encode("ascii")


def read_head(line: bytes) -> tuple[int, WriteVersions] | None:
    """The revision and the writers of a line that `head` wrote; None for any other."""
    revision, *rest = line.split(b" ")
    pairs = [word.partition(b"=") for word in rest]
    numbers = [revision, *(number for _, _, number in pairs)]
    if not all(number.isdigit() and len(number) < _MAX_NUMBER_LENGTH for number in numbers):
        return None
    return int(revision), {name.decode("ascii", "replace"): int(number) for name, _, number in pairs}


_NAME: Final = "news"
_OLDEST_SECONDS: Final = 600.0
"""Maximum age of a message in seconds; older messages are dropped as replays."""

BroadcastHandler = Callable[[str, str], None]
"""Called with the subject of a message and its content."""


class _Item(msgspec.Struct, frozen=True, array_like=True):
    sender: str
    at: float
    kind: str
    about: str
    what: str


class Broadcast:
    """Publishes and receives messages by kind."""

    def __init__(self, state: SessionStatePort, sealer: StateSigner, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since the epoch."""
        self._state = state
        self._sealer = sealer
        self._clock = clock
        self._own = uuid4().hex
        self._hearing: dict[str, BroadcastHandler] = {}
        state.listen(self._heard)

    def on(self, kind: str, hearing: BroadcastHandler) -> None:
        """Subscribe `hearing` to the messages of other processes of this kind."""
        self._hearing[kind] = hearing

    async def notify(self, kind: str, about: str, what: str) -> None:
        """Let the other processes know."""
        item = _Item(self._own, self._clock(), kind, about, what)
        await self._state.notify(self._sealer.seal(_NAME, msgspec.json.encode(item)))

    def _heard(self, news: bytes) -> None:
        plain = self._sealer.opened(_NAME, news)
        if plain is None:
            return
        try:
            item = msgspec.json.decode(plain, type=_Item)
        except (msgspec.MsgspecError, UnicodeError):
            self._sealer.reject("it is no news")
            return
        if item.sender != self._own and self._clock() - item.at < _OLDEST_SECONDS and item.kind in self._hearing:
            self._hearing[item.kind](item.about, item.what)


_BATCH_SIZE: Final = 100
_ATTEMPTS: Final = 5
_WAITING_SECONDS: Final = 2.0


def session_name(sealer: StateSigner, session_id: UUID) -> str:
    """The key of a session, and of how far it has come."""
    return sealer.name("session", session_id.bytes)


def count_name(sealer: StateSigner, session_id: UUID) -> str:
    """The key of the number of a session's calls."""
    return sealer.name("count", session_id.bytes)


async def drop_sessions(state: SessionStatePort, secret: bytes, sessions: Sequence[UUID]) -> int:
    """Remove all that is kept by session, and give the number of sessions of which something was.

    Raises:
        StateUnavailableError: that cannot be made sure.
    """
    sealer, there = StateSigner(secret), 0
    for start in range(0, len(sessions), _BATCH_SIZE):
        some = sessions[start : start + _BATCH_SIZE]
        names = [session_name(sealer, each) for each in some]
        there += sum(await _there(state, names))
        await state.drop([*names, *(count_name(sealer, each) for each in some)])
        if any(await _there(state, names)):
            raise StateUnavailableError("what is kept of sessions could not be removed")
    return there


async def _there(state: SessionStatePort, names: Sequence[str]) -> list[bool]:
    for _ in range(_ATTEMPTS):
        try:
            return await state.there(names)
        except StateUnavailableError:
            await state.returned(_WAITING_SECONDS)
    return await state.there(names)
