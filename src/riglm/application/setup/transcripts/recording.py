"""Puts what was found in transcripts into the store."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from riglm.application.setup.transcripts.transcript_sessions import PairTraining, TranscriptSession, latest_that_fit
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
        recorded = _session(
            session,
            client_id=hasher.client_id(session.client, principal),
            principal=principal,
            project=hasher.project(project) if project else "",
            profile=profile,
            is_over=session.ended_at < open_since,
        )
        learned: list[Record] = []
        if is_example and not fault:
            try:
                learned += training.of(session, recorded)
            except EmbedderUnavailableError as error:
                fault = str(error)
                _log.warning("contexts are not learned: %s", error)
        return [recorded, *_invocations(session), *learned]

    ordered = sorted(sessions, key=lambda each: (each.started_at, each.id))
    examples = latest_that_fit(ordered, most_pairs)
    waiting: list[Record] = []
    some: list[TranscriptSession] = []
    for place, session in enumerate(ordered):
        waiting += records_of(session, is_example=place in examples)
        some.append(session)
        if len(waiting) >= RECORDS_BATCH_SIZE or session is ordered[-1]:
            _store_records(store, waiting, some)
            advance(len(some))
            waiting, some = [], []
    if sessions:
        store.forget_warm_sets()  # or the lists of today would not know of it before tomorrow
    return fault


def _store_records(store: AnalyticsPort, records: Sequence[Record], sessions: Sequence[TranscriptSession]) -> None:
    store.record_many(records)
    for session in sessions:
        there = {call.id for call in store.list_invocations(session.id)}
        session.forgotten = sum(step.id not in there for step in session.steps)


def _session(
    session: TranscriptSession, *, client_id: str, principal: str, project: str, profile: str, is_over: bool
) -> Session:
    return Session(
        id=session.id,
        started_at=session.started_at,
        ended_at=session.ended_at if is_over else None,
        era=ProtocolEra.HANDSHAKE,
        transport=Transport.STDIO,
        method=IdentificationMethod.TRANSCRIPT,
        client=ClientInfo(name=session.client),
        client_id=client_id,
        principal=principal,
        project=project,
        metadata={"source": "transcript", PROFILE: profile},
    )


def _invocations(session: TranscriptSession) -> list[Record]:
    return [
        ToolInvocation(
            id=step.id,
            session_id=session.id,
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
        for step in session.steps
    ]
