"""Conversations as they are taken from transcripts: what was called in them, and what had been asked for."""

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from riglm.domain.hashing import KeyedHasher
from riglm.domain.retrieval.words import words

LONGEST_CONTEXT: Final = 8_000
"""Characters of what was asked that are looked at; the rest says little more."""

LEAST_WORDS: Final = 3
"""Whatever has fewer words that count, such as "go on", goes on with what was asked before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A call that is to be recorded; `asked` are the contexts it was made in, by their places in the conversation.

    `number` counts the calls of the conversation from 1. Times are in seconds since the epoch.
    """

    id: UUID
    tool: str
    upstream: str
    arguments_hash: str
    started: float
    seconds: float
    failed: bool
    number: int
    asked: tuple[int, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class Conversation:
    """One conversation, as far as it was read.

    `source` is the client as riglm's commands name it, `client` as it names itself. `known` are the ids of its calls
    that are in the store already, None before one is looked for. `forgotten` counts those that the store would not
    take: of somebody whom it is to have forgotten.
    """

    id: UUID
    source: str
    client: str
    started_at: float
    ended_at: float
    known: frozenset[UUID] | None = None
    calls: int = 0
    forgotten: int = 0
    contexts: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def hear(self, text: str) -> None:
        """Something was asked for, if it has words enough."""
        said = text[:LONGEST_CONTEXT]
        if len(words(said)) >= LEAST_WORDS:
            self.contexts.append(said)

    @property
    def asked(self) -> tuple[int, ...]:
        """The contexts that count now: what it began with, and what was asked last."""
        last = len(self.contexts) - 1
        return () if last < 0 else (0,) if last == 0 else (0, last)


class Identities:
    """Ids that are the same at every reading, and tell nothing of what they were made from.

    They are of version 8, those of what riglm recorded itself of version 7.
    """

    def __init__(self, hasher: KeyedHasher) -> None:
        self._hasher = hasher

    def of_conversation(self, client: str, lane: str) -> UUID:
        """The id of a conversation of a client."""
        return self._made("conversation", client, lane)

    def of_call(self, client: str, identity: str, tool: str) -> UUID:
        """The id of a call in any conversation of a client; under another name of its tool it is learned once more."""
        return self._made("call", client, identity, tool)

    def _made(self, *parts: str) -> UUID:
        bits = int(self._hasher.session_key("\0".join(("transcript", *parts))), 16)
        return UUID(int=bits & ~(0xF << 76) & ~(0b11 << 62) | 8 << 76 | 0b10 << 62)


def is_imported(session_id: UUID) -> bool:
    """Whether a recorded session was taken from a transcript."""
    return session_id.version == 8  # as `Identities` makes them
