"""Sessions as they are taken from transcripts, and how they are stored."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

from riglm.application.prediction.prediction_state import PairLearner
from riglm.domain.hashing import KeyedHasher
from riglm.domain.invocation import DiscoveryMethod, ToolInvocation
from riglm.domain.learning import SIGNALS, LearnedPair
from riglm.domain.prediction import Context
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.retrieval.words import words
from riglm.domain.session import PROFILE, ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.domain.session_cost import TokenUsage
from riglm.domain.transcripts import TranscriptRequest
from riglm.ports.analytics import AnalyticsPort, LearnedPairsDeleted, Record
from riglm.ports.embedder import EmbedderPort, EmbedderUnavailableError

MAX_CONTEXT_LENGTH: Final = 8_000
"""Characters of what was asked that are looked at; the rest says little more."""

MIN_WORDS: Final = 3
"""A message with fewer words that count, such as "go on", continues the previous context."""


@dataclass(slots=True, kw_only=True, eq=False)
class TranscriptSession:
    """One conversation, up to the point that has been read.

    `source` is the client as riglm's commands name it, `client` as it names itself. `directory` is where the client was
    started, empty if that is unknown. `known` are the ids of its calls that are already stored, None before the lookup.
    `steps` are the calls to record, each with the indexes of the `contexts` that it was made in. `forgotten` counts
    calls that the store would reject because their principal was erased. `usage_id` is the id of the token usage of its
    `requests`.
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
    steps: list[tuple[ToolInvocation, tuple[int, ...]]] = field(default_factory=list)
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

    def add_context(self, text: str) -> None:
        """Add what was asked for, if it has words enough."""
        said = text[:MAX_CONTEXT_LENGTH]
        if len(words(said)) >= MIN_WORDS:
            self.contexts.append(said)

    @property
    def current_contexts(self) -> tuple[int, ...]:
        """The indexes of the contexts that count now: what it began with, and what was asked last."""
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
        # What the tool said of itself then is not known: it has no fingerprint.
        learn = partial(self._learner.learn, scope=self._scope, fingerprint="", session=session)
        for call, asked in conversation.steps:
            for number in asked if call.success else ():
                learn(contexts[number], call.tool, SIGNALS[DiscoveryMethod.LISTED], at=call.timestamp)
        learned, self._learned = self._learned, []
        return learned

    def _keep(self, record: LearnedPair | LearnedPairsDeleted, _: int) -> None:
        self._learned.append(record)

    def _embedded(self, conversation: TranscriptSession) -> dict[int, Context]:
        numbers = sorted({number for _, asked in conversation.steps for number in asked})
        found: dict[int, Context] = {}
        for start in range(0, len(numbers), BATCH):
            some = numbers[start : start + BATCH]
            texts = [conversation.contexts[number] for number in some]
            for number, text, vector in zip(some, texts, self._embedder.embed(texts), strict=True):
                found[number] = Context(text=text, vector=vector, model=self._embedder.model)
        return found


def latest_that_fit(conversations: Sequence[TranscriptSession], most_pairs: int) -> set[int]:
    """Return the indexes of the latest conversations that train at most `pairs` pairs; older pairs would be removed."""
    chosen: set[int] = set()
    for place in reversed(range(len(conversations))):
        if most_pairs <= 0:
            break
        chosen.add(place)
        steps = conversations[place].steps
        most_pairs -= len({(number, call.tool) for call, asked in steps if call.success for number in asked})
    return chosen


RECORDS_BATCH_SIZE: Final = 500
"""Records of one transaction, but for those of one session, which are stored together."""

_log: Final = logging.getLogger("riglm.importing")


def record_token_usage(
    store: AnalyticsPort, hasher: KeyedHasher, principal: str, conversations: Sequence[TranscriptSession]
) -> None:
    """Store the token counts of conversations.

    Raises:
        AnalyticsUnavailableError: the store cannot be written.
    """
    for start in range(0, len(conversations), RECORDS_BATCH_SIZE):
        some = conversations[start : start + RECORDS_BATCH_SIZE]
        store.record_many([each.to_token_usage(hasher.client_id(each.client, principal), principal) for each in some])


def record_sessions(
    store: AnalyticsPort,
    hasher: KeyedHasher,
    training: PairTraining,
    sessions: Sequence[TranscriptSession],
    *,
    principal: str,
    profile: str,
    find_project: Callable[[str], str],
    most_pairs: int,
    open_since: float,
    advance: Callable[[int], None],
) -> str:
    """Store what is new in conversations, oldest first, each with all that it taught in one transaction.

    If the import is interrupted, every stored session was learned, and the next run continues after it. A conversation
    active after `open_since` may be unfinished. `find_project` returns what names the project of a directory, empty if
    it belongs to none. `advance` is called with the number of stored conversations. Returns why contexts were not
    learned, or nothing.

    Raises:
        AnalyticsUnavailableError: the store cannot be written.
    """
    fault = ""

    def records_of(session: TranscriptSession, *, is_example: bool) -> list[Record]:
        nonlocal fault
        project = find_project(session.directory)
        recorded = Session(
            id=session.id,
            started_at=session.started_at,
            ended_at=session.ended_at if session.ended_at < open_since else None,
            era=ProtocolEra.HANDSHAKE,
            transport=Transport.STDIO,
            method=IdentificationMethod.TRANSCRIPT,
            client=ClientInfo(name=session.client),
            client_id=hasher.client_id(session.client, principal),
            principal=principal,
            project=hasher.project(project) if project else "",
            metadata={"source": "transcript", PROFILE: profile},
        )
        learned: list[Record] = []
        if is_example and not fault:
            try:
                learned += training.of(session, recorded)
            except EmbedderUnavailableError as error:
                fault = str(error)
                _log.warning("contexts are not learned: %s", error)
        return [recorded, *(call for call, _ in session.steps), *learned]

    ordered = sorted(sessions, key=lambda each: (each.started_at, each.id))
    examples = latest_that_fit(ordered, most_pairs)
    waiting: list[Record] = []
    some: list[TranscriptSession] = []
    for place, session in enumerate(ordered):
        waiting += records_of(session, is_example=place in examples)
        some.append(session)
        if len(waiting) >= RECORDS_BATCH_SIZE or session is ordered[-1]:
            store.record_many(waiting)
            for each in some:
                there = {call.id for call in store.list_invocations(each.id)}
                each.forgotten = sum(call.id not in there for call, _ in each.steps)
            advance(len(some))
            waiting, some = [], []
    if sessions:
        store.forget_warm_sets()  # or the lists of today would not know of it before tomorrow
    return fault
