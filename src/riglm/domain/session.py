"""A session: one piece of work by one client, as riglm records it."""

from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from riglm.domain.identifier import uuid7


class Era(StrEnum):
    """How a client and a server speak: with the initialize handshake, or with an envelope in every request."""

    HANDSHAKE = "handshake"
    MODERN = "modern"


class Transport(StrEnum):
    """How a client reaches riglm."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


class Method(StrEnum):
    """How a session was recognised, best evidence first."""

    HANDLE = "handle"
    META_KEY = "meta_key"
    ENVIRONMENT = "environment"
    CONNECTION = "connection"
    PROCESS = "process"
    PRINCIPAL = "principal"
    ADDRESS = "address"


class Confidence(StrEnum):
    """How sure the recognition is."""

    EXACT = "exact"
    CONNECTION = "connection"
    INFERRED = "inferred"
    WEAK = "weak"


CONFIDENCE = {
    Method.HANDLE: Confidence.EXACT,
    Method.META_KEY: Confidence.EXACT,
    Method.ENVIRONMENT: Confidence.EXACT,
    Method.CONNECTION: Confidence.CONNECTION,
    Method.PROCESS: Confidence.CONNECTION,
    Method.PRINCIPAL: Confidence.INFERRED,
    Method.ADDRESS: Confidence.WEAK,
}
"""How far each method of recognition can be trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """What a client says of itself. Self-reported: good for statistics, never for decisions about rights."""

    name: str = ""
    version: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """A session has identity and changes as calls come in.

    `client_id`, `principal` and the values of `keys` are keyed hashes, never what was sent. `started_at` and `ended_at`
    are seconds since the epoch. `sequence` is the number of invocations so far.
    """

    started_at: float
    era: Era
    transport: Transport
    method: Method
    id: UUID = field(default_factory=uuid7)
    client: Client = Client()
    client_id: str = ""
    principal: str = ""
    protocol_version: str = ""
    keys: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    tools_available: tuple[str, ...] = ()
    ended_at: float | None = None
    sequence: int = 0

    @property
    def confidence(self) -> Confidence:
        """How sure the recognition is."""
        return CONFIDENCE[self.method]

    def next_sequence_number(self) -> int:
        """The order number of the next invocation, counted from 1."""
        self.sequence += 1
        return self.sequence
