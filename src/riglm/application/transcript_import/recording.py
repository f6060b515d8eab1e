"""Puts what was found in transcripts into the store."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from riglm.application.transcript_import.transcript_sessions import PairTraining, TranscriptSession, latest_that_fit
from riglm.domain.hashing import KeyedHasher
from riglm.domain.invocation import DiscoveryMethod, ErrorKind, ToolInvocation
from riglm.domain.session import PROFILE, ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.ports.analytics import AnalyticsPort, Record
from riglm.ports.embedder import EmbedderUnavailableError

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


class ImportRecorder:
    """Stores conversations as sessions, oldest first, each with all that it taught in one transaction.

    If the import is interrupted, every stored session was learned, and the next run continues after it.
    """

    def __init__(
        self,
        store: AnalyticsPort,
        hasher: KeyedHasher,
        pair_training: PairTraining | None,
        *,
        principal: str,
        profile: str,
        find_project: Callable[[str], str],
        most_pairs: int,
        open_since: float,
    ) -> None:
        """Without `pair_training` no pairs are learned. A conversation active after `open_since` may be unfinished.

        `find_project` returns what names the project of a directory, empty if it belongs to none.
        """
        self._store = store
        self._hasher = hasher
        self._training_queue = pair_training
        self._principal = principal
        self._profile = profile
        self._find_project = find_project
        self._most_pairs = most_pairs
        self._open_since = open_since
        self.contexts_failed = ""

    def record(self, conversations: Sequence[TranscriptSession], advance: Callable[[int], None]) -> None:
        """Store what is new in the conversations; `advance` is called with the number of stored conversations.

        Raises:
            AnalyticsUnavailableError: the store cannot be written.
        """
        waiting: list[Record] = []
        some: list[TranscriptSession] = []
        for conversation, records in self._records(sorted(conversations, key=lambda each: (each.started_at, each.id))):
            waiting += records
            some.append(conversation)
            if len(waiting) >= RECORDS_BATCH_SIZE:
                self._store_all(waiting, some)
                advance(len(some))
                waiting, some = [], []
        if waiting:
            self._store_all(waiting, some)
            advance(len(some))
        if conversations:
            self._store.forget_warm_sets()  # or the lists of today would not know of it before tomorrow

    def _store_all(self, records: Sequence[Record], conversations: Sequence[TranscriptSession]) -> None:
        self._store.record_many(records)
        for conversation in conversations:
            there = {call.id for call in self._store.list_invocations(conversation.id)}
            conversation.forgotten = sum(step.id not in there for step in conversation.steps)

    def _records(self, conversations: Sequence[TranscriptSession]) -> Iterator[tuple[TranscriptSession, list[Record]]]:
        example = latest_that_fit(conversations, self._most_pairs)
        for place, conversation in enumerate(conversations):
            session = self._session(conversation)
            learned = self._learned(conversation, session) if place in example else []
            yield conversation, [session, *self._invocations(conversation), *learned]

    def _session(self, conversation: TranscriptSession) -> Session:
        is_over = conversation.ended_at < self._open_since
        project = self._find_project(conversation.directory)
        return Session(
            id=conversation.id,
            started_at=conversation.started_at,
            ended_at=conversation.ended_at if is_over else None,
            era=ProtocolEra.HANDSHAKE,
            transport=Transport.STDIO,
            method=IdentificationMethod.TRANSCRIPT,
            client=ClientInfo(name=conversation.client),
            client_id=self._hasher.client_id(conversation.client, self._principal),
            principal=self._principal,
            project=self._hasher.project(project) if project else "",
            metadata={"source": "transcript", PROFILE: self._profile},
        )

    def _invocations(self, conversation: TranscriptSession) -> list[Record]:
        return [
            ToolInvocation(
                id=step.id,
                session_id=conversation.id,
                tool=step.tool,
                upstream=step.upstream,
                timestamp=step.started,
                duration_ms=step.seconds * 1e3,
                success=not step.failed,
                sequence_number=step.number,
                arguments_hash=step.arguments_hash,
                error_kind=ErrorKind.TOOL if step.failed else None,
                found=DiscoveryMethod.LISTED,
            )
            for step in conversation.steps
        ]

    def _learned(self, conversation: TranscriptSession, session: Session) -> list[Record]:
        if self._training_queue is None or self.contexts_failed:
            return []
        try:
            return [*self._training_queue.of(conversation, session)]
        except EmbedderUnavailableError as error:
            self.contexts_failed = str(error)
            _log.warning("contexts are not learned: %s", error)
            return []
