"""A session: one piece of work by one client, as riglm records it."""

import random
import threading
import time
import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from uuid import UUID

_lock = threading.Lock()
_last_ms = 0
_sequence = 0
_new: Final = object.__new__
_set: Final = object.__setattr__  # a UUID refuses to be changed


def uuid7() -> uuid.UUID:
    """A new UUIDv7 (RFC 9562, section 5.7), strictly increasing within this process.

    The 12 bits after the millisecond are a counter that starts at a random place in its lower half (RFC 9562,
    section 6.2, method 1); when it runs over, or the clock steps back, the millisecond is carried on from the last one.
    """
    global _last_ms, _sequence  # noqa: PLW0603  # one counter a process is the point
    chance = random.getrandbits(80)  # ids are no secrets, and a system call takes longer than the rest
    with _lock:
        now_ms = time.time_ns() // 1_000_000
        if now_ms > _last_ms:
            _last_ms = now_ms
            _sequence = (chance >> 64) & 0x7FF
        else:
            _sequence += 1
            if _sequence > 0xFFF:
                _last_ms += 1
                _sequence = 0
        ms, sequence = _last_ms, _sequence
    made = _new(uuid.UUID)  # without the parsing and the checks of its constructor, which take a microsecond
    _set(made, "int", (ms << 80) | (0x7000 | sequence) << 64 | (0b10 << 62) | (chance & 0x3FFF_FFFF_FFFF_FFFF))
    _set(made, "is_safe", uuid.SafeUUID.unknown)
    return made


def parsed_uuid(text: str) -> uuid.UUID | None:
    """The UUID that a text spells, None when it spells none."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


class ProtocolEra(StrEnum):
    """The protocol era of a client or server: an initialize handshake, or an envelope in every request."""

    HANDSHAKE = "handshake"
    MODERN = "modern"


class Transport(StrEnum):
    """How a client reaches riglm; an agent that uses riglm as a library is in the same process."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"
    LIBRARY = "library"


class IdentificationMethod(StrEnum):
    """How a session was recognised, best evidence first."""

    HANDLE = "handle"
    META_KEY = "meta_key"
    ENVIRONMENT = "environment"
    CONNECTION = "connection"
    PROCESS = "process"
    PRINCIPAL = "principal"
    ADDRESS = "address"
    TRANSCRIPT = "transcript"
    """Not recognised while it went on, but read from what the client wrote down of it."""


class IdentificationConfidence(StrEnum):
    """How sure the recognition is."""

    EXACT = "exact"
    CONNECTION = "connection"
    INFERRED = "inferred"
    WEAK = "weak"


CONFIDENCE = {
    IdentificationMethod.HANDLE: IdentificationConfidence.EXACT,
    IdentificationMethod.META_KEY: IdentificationConfidence.EXACT,
    IdentificationMethod.ENVIRONMENT: IdentificationConfidence.EXACT,
    IdentificationMethod.CONNECTION: IdentificationConfidence.CONNECTION,
    IdentificationMethod.PROCESS: IdentificationConfidence.CONNECTION,
    IdentificationMethod.PRINCIPAL: IdentificationConfidence.INFERRED,
    IdentificationMethod.ADDRESS: IdentificationConfidence.WEAK,
    IdentificationMethod.TRANSCRIPT: IdentificationConfidence.EXACT,
}
"""How far each method of recognition can be trusted."""


MAX_RESERVED: Final = 1_000
"""Maximum number of reserved numbers, the oldest are released first: they were unused for long."""


PROFILE: Final = "profile"
"""The key of a session's metadata that holds the profile that it began with."""

ACCESS: Final = "access"
"""The key of a session's metadata that holds the access rules that apply to its caller, one on each line."""

DEFAULT_PROFILE: Final = "default"
"""The profile of sessions that began with no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientInfo:
    """A client's name and version as it sent them: good for statistics, never for decisions about rights."""

    name: str = ""
    version: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """A session has identity and changes as calls come in.

    `client_id`, `principal`, `project` and the values of `keys` are keyed hashes, never what was sent; `project` is
    empty while it is unknown. `started_at` and `ended_at` are seconds since the epoch. `metadata` is what riglm
    recorded at the start, such as `PROFILE`. `sequence` is the number of invocations so far. `reserved` are the numbers
    of calls that are about to start, where several processes count together. `forgotten_at` is when the session was
    reset by an erasure, 0 if never.
    """

    started_at: float
    era: ProtocolEra
    transport: Transport
    method: IdentificationMethod
    id: UUID = field(default_factory=uuid7)
    client: ClientInfo = ClientInfo()
    client_id: str = ""
    principal: str = ""
    project: str = ""
    protocol_version: str = ""
    keys: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    tools_available: tuple[str, ...] = ()
    ended_at: float | None = None
    sequence: int = 0
    reserved: tuple[int, ...] = ()
    forgotten_at: float = 0.0

    @property
    def profile(self) -> str:
        """The profile that it began with."""
        return self.metadata.get(PROFILE, DEFAULT_PROFILE)

    @property
    def access(self) -> str:
        """The access rules that apply to its caller, one on each line; empty if there are none."""
        return self.metadata.get(ACCESS, "")

    @property
    def confidence(self) -> IdentificationConfidence:
        """How sure the recognition is."""
        return CONFIDENCE[self.method]

    def next_sequence_number(self) -> int:
        """The order number of the next invocation, counted from 1."""
        if not self.reserved:
            self.sequence += 1
            return self.sequence
        number, *rest = self.reserved
        self.reserved = tuple(rest)
        self.sequence = max(self.sequence, number)
        return number

    def reserve(self, number: int) -> None:
        """Reserve the number of an invocation that is about to start."""
        self.reserved = (*self.reserved[-MAX_RESERVED:], number)

    def release(self, number: int) -> None:
        """No invocation took this number, if it is reserved still."""
        if number in self.reserved:
            self.reserved = tuple(one for one in self.reserved if one != number)
