"""Conversations as they are taken from transcripts: what was called in them, and what had been asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from riglm.application.prediction.pair_learner import PairLearner
from riglm.domain.hashing import KeyedHasher
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.learning import SIGNALS, LearnedPair
from riglm.domain.prediction import Context
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.retrieval.words import words
from riglm.domain.session import Session
from riglm.domain.token_usage import TokenUsage
from riglm.domain.transcripts import TranscriptRequest
from riglm.ports.analytics import LearnedPairsDeleted
from riglm.ports.embedder import EmbedderPort

MAX_CONTEXT_LENGTH: Final = 8_000
"""Characters of what was asked that are looked at; the rest says little more."""

MIN_WORDS: Final = 3
"""A message with fewer words that count, such as "go on", continues the previous context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedCall:
    """A call to record; `asked` are the indexes of the contexts that it was made in.

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
class TranscriptSession:
    """One conversation, up to the point that has been read.

    `source` is the client as riglm's commands name it, `client` as it names itself. `directory` is where the client was
    started, empty if that is unknown. `known` are the ids of its calls that are already stored, None before the lookup.
    `forgotten` counts calls that the store would reject because their principal was erased. `usage_id` is the id of the
    token usage of its `requests`.
    """

    id: UUID
    source: str
    client: str
    started_at: float
    ended_at: float
    directory: str = ""
    known: frozenset[UUID] | None = None
    calls: int = 0
    forgotten: int = 0
    contexts: list[str] = field(default_factory=list)
    steps: list[ImportedCall] = field(default_factory=list)
    requests: dict[str, TranscriptRequest] = field(default_factory=dict)
    usage_id: UUID | None = None

    def add_request(self, request: TranscriptRequest) -> None:
        """Add a model request, or replace it if its output was incomplete."""
        known = self.requests.setdefault(request.identity, request)
        if request.tokens.output > known.tokens.output:
            self.requests[request.identity] = request

    def to_token_usage(self, client_id: str, principal: str) -> TokenUsage:
        """Return the token counts of the session's requests, of which there is at least one."""
        requests = sorted(self.requests.values(), key=lambda each: each.at)
        return TokenUsage.from_requests(
            [each.tokens for each in requests],
            id=self.usage_id,
            session_id=self.id,
            client=self.client,
            client_id=client_id,
            principal=principal,
            started_at=requests[0].at,
            calls=self.calls,
        )

    def hear(self, text: str) -> None:
        """Something was asked for, if it has words enough."""
        said = text[:MAX_CONTEXT_LENGTH]
        if len(words(said)) >= MIN_WORDS:
            self.contexts.append(said)

    @property
    def asked(self) -> tuple[int, ...]:
        """The contexts that count now: what it began with, and what was asked last."""
        last = len(self.contexts) - 1
        return () if last < 0 else (0,) if last == 0 else (0, last)


def stable_id(hasher: KeyedHasher, *parts: str) -> UUID:
    """Return an id that is the same at every reading, and reveals nothing of its parts.

    It is of version 8; ids of what riglm recorded itself are of version 7.
    """
    bits = int(hasher.session_key("\0".join(("transcript", *parts))), 16)
    return UUID(int=bits & ~(0xF << 76) & ~(0b11 << 62) | 8 << 76 | 0b10 << 62)


def is_imported(session_id: UUID) -> bool:
    """True if a recorded session was taken from a transcript."""
    return session_id.version == 8


BATCH: Final = 32
"""Contexts that are embedded at once."""


class PairTraining:
    """Teaches the pairs that are known already, as the sessions would have that riglm had been part of."""

    def __init__(
        self, pairs: LearnedPairs, embedder: EmbedderPort, *, most_pairs: int, scope: str, names: Callable[[str], str]
    ) -> None:
        """`scope` is who learns, and `names` gives the keyed hash of a client's name."""
        self._embedder = embedder
        self._scope = scope
        self._learned: list[LearnedPair | LearnedPairsDeleted] = []
        self._learner = PairLearner(pairs, self._keep, most_pairs=most_pairs, names=names)

    def of(self, conversation: TranscriptSession, session: Session) -> list[LearnedPair | LearnedPairsDeleted]:
        """What a conversation teaches, to be stored with its session.

        Raises:
            EmbedderUnavailableError: the model does not answer.
        """
        contexts = self._embedded(conversation)
        for step in conversation.steps:
            for number in () if step.failed else step.asked:
                self._learner.learn(
                    contexts[number],
                    step.tool,
                    SIGNALS[DiscoveryMethod.LISTED],
                    scope=self._scope,
                    at=step.started,
                    fingerprint="",  # what the tool said of itself then is not known
                    session=session,
                )
        learned, self._learned = self._learned, []
        return learned

    def _keep(self, record: LearnedPair | LearnedPairsDeleted, _: int) -> None:
        self._learned.append(record)

    def _embedded(self, conversation: TranscriptSession) -> dict[int, Context]:
        numbers = sorted({number for step in conversation.steps for number in step.asked})
        found: dict[int, Context] = {}
        for start in range(0, len(numbers), BATCH):
            some = numbers[start : start + BATCH]
            texts = [conversation.contexts[number] for number in some]
            for number, text, vector in zip(some, texts, self._embedder.embed(texts), strict=True):
                found[number] = Context(text=text, vector=vector, model=self._embedder.model)
        return found


def pairs_taught(conversation: TranscriptSession) -> int:
    """How many pairs a conversation teaches at most."""
    return len({(number, step.tool) for step in conversation.steps if not step.failed for number in step.asked})


def latest_that_fit(conversations: Sequence[TranscriptSession], most_pairs: int) -> set[int]:
    """Return the indexes of the latest conversations that train at most `pairs` pairs; older pairs would be removed."""
    chosen: set[int] = set()
    for place in reversed(range(len(conversations))):
        if most_pairs <= 0:
            break
        chosen.add(place)
        most_pairs -= pairs_taught(conversations[place])
    return chosen
