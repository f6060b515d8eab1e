"""A session and how far it has come, as another process needs it to show the same lists."""

from dataclasses import replace
from uuid import UUID

import msgspec

from riglm.domain.list_plan import ListPlan
from riglm.domain.prediction import Context
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.domain.session_state import MAX_CALLS, MAX_USED, SessionState


class SessionProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`SessionState`, without what each process makes for itself: vectors, the view, and the words of searches."""

    calls: tuple[str, ...] = ()
    context: str | None = None
    turn: int = 0
    turn_key: str = ""
    used_in_turn: dict[str, int] = {}
    plan: ListPlan | None = None
    shown: tuple[str, ...] | None = None
    searched: tuple[str, ...] = ()
    suggested: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()
    changes: int = 0
    made: int = 0
    last_at: float = 0.0


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a session; `client_id`, `principal`, `project` and the values of `keys` are keyed hashes.

    `forgotten_at` is as in `Session`.
    """

    id: UUID
    started_at: float
    era: ProtocolEra
    transport: Transport
    method: IdentificationMethod
    client_name: str = ""
    client_version: str = ""
    client_id: str = ""
    principal: str = ""
    project: str = ""
    protocol_version: str = ""
    keys: dict[str, str] = {}
    metadata: dict[str, str] = {}
    sequence: int = 0
    forgotten_at: float = 0.0
    progress: SessionProgress | None = None

    def session(self) -> Session:
        """The session, as a new object."""
        return Session(
            id=self.id,
            started_at=self.started_at,
            era=self.era,
            transport=self.transport,
            method=self.method,
            client=ClientInfo(name=self.client_name, version=self.client_version),
            client_id=self.client_id,
            principal=self.principal,
            project=self.project,
            protocol_version=self.protocol_version,
            keys=dict(self.keys),
            metadata=dict(self.metadata),
            sequence=self.sequence,
            forgotten_at=self.forgotten_at,
        )

    def bring(self, session: Session, state: SessionState | None) -> bool:
        """Set a session to its stored state. Returns True if its context changed."""
        session.sequence = max(session.sequence, self.sequence)
        session.forgotten_at = self.forgotten_at
        session.keys = {**self.keys, **session.keys}
        session.project = session.project or self.project
        session.protocol_version = session.protocol_version or self.protocol_version
        return state is not None and self.progress is not None and _bring(self.progress, state)


def recorded(session: Session, state: SessionState | None) -> SessionRecord:
    """Return the state of a session as stored."""
    return SessionRecord(
        id=session.id,
        started_at=session.started_at,
        era=session.era,
        transport=session.transport,
        method=session.method,
        client_name=session.client.name,
        client_version=session.client.version,
        client_id=session.client_id,
        principal=session.principal,
        project=session.project,
        protocol_version=session.protocol_version,
        keys=session.keys,
        metadata=session.metadata,
        sequence=session.sequence,
        forgotten_at=session.forgotten_at,
        progress=None if state is None else _progress(state),
    )


def encoded(session: Session, state: SessionState | None) -> bytes:
    """A session as bytes."""
    return msgspec.json.encode(recorded(session, state))


def decoded(plain: bytes) -> SessionRecord | None:
    """The session that was encoded; None when it is none that riglm would write."""
    try:
        return msgspec.json.decode(plain, type=SessionRecord)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _progress(state: SessionState) -> SessionProgress:
    return SessionProgress(
        calls=tuple(state.calls),
        context=None if state.context is None else state.context.text,
        turn=state.turn,
        turn_key=state.turn_key,
        used_in_turn=state.used_in_turn,
        plan=state.plan,
        shown=state.shown,
        searched=tuple(sorted(state.searched)),
        suggested=tuple(sorted(state.suggested)),
        sent=tuple(sorted(state.sent)),
        changes=state.changes,
        made=state.made,
        last_at=state.last_at,
    )


def _bring(progress: SessionProgress, state: SessionState) -> bool:
    before = None if state.context is None else state.context.text
    state.calls = list(progress.calls[-MAX_CALLS:])
    state.turn, state.turn_key = progress.turn, progress.turn_key
    state.used_in_turn = dict(list(progress.used_in_turn.items())[-MAX_USED:])
    state.searched, state.suggested = set(progress.searched), set(progress.suggested)
    state.sent = set(progress.sent)
    state.changes, state.made, state.last_at = progress.changes, progress.made, progress.last_at
    candidates = () if state.view is None else state.view.candidates
    if progress.shown != state.shown:
        state.has = None  # another process gave the client a list
    state.shown = candidates if progress.shown == candidates and candidates else progress.shown
    state.plan = progress.plan
    if state.plan is not None and state.plan.candidates == candidates:
        state.plan = replace(state.plan, candidates=candidates)  # so that an unchanged catalog is recognized at once
    if progress.context == before:
        return False
    state.context = None if progress.context is None else Context(text=progress.context)
    return progress.context is not None


def merged(base: SessionRecord | None, ours: SessionRecord, theirs: SessionRecord) -> SessionRecord:
    """The record that holds both what changed here, from `base` to `ours`, and all that is in `theirs`.

    Calls are only added, any context sent since `base` counts, and of two the one merged last. Without a base, all
    local state is new. A record without the session's earlier state wins: the session was forgotten elsewhere.
    """
    if ours.forgotten_at != theirs.forgotten_at:
        return max(ours, theirs, key=lambda record: record.forgotten_at)
    before = None if base is None or base.forgotten_at != ours.forgotten_at else base
    return msgspec.structs.replace(
        theirs,
        method=theirs.method if before is None or ours.method == before.method else ours.method,
        protocol_version=theirs.protocol_version or ours.protocol_version,
        keys={**theirs.keys, **ours.keys},
        project=ours.project or theirs.project,
        sequence=max(ours.sequence, theirs.sequence),
        progress=_merging_progress(None if before is None else before.progress, ours.progress, theirs.progress),
    )


def _merging_progress(
    base: SessionProgress | None, ours: SessionProgress | None, theirs: SessionProgress | None
) -> SessionProgress | None:
    if ours is None or theirs is None:
        return ours or theirs
    base = base or SessionProgress()
    made_here = min(max(0, ours.made - base.made), len(ours.calls))
    calls = (*theirs.calls, *ours.calls[len(ours.calls) - made_here :])
    said_here = ours.context != base.context
    said_elsewhere = theirs.context != base.context
    listed = theirs if said_elsewhere and not said_here else ours
    return SessionProgress(
        calls=calls[-MAX_CALLS:],
        made=theirs.made + made_here,
        context=ours.context if said_here else theirs.context,
        turn=max(ours.turn, theirs.turn),
        turn_key=ours.turn_key if ours.turn_key != base.turn_key else theirs.turn_key,
        used_in_turn=_used(base.used_in_turn, ours.used_in_turn, theirs.used_in_turn),
        plan=listed.plan if listed.plan != base.plan else theirs.plan,
        shown=listed.shown if listed.shown != base.shown else theirs.shown,
        searched=_joined(base.searched, ours.searched, theirs.searched),
        suggested=_joined(base.suggested, ours.suggested, theirs.suggested),
        sent=_joined(base.sent, ours.sent, theirs.sent),
        changes=theirs.changes + max(0, ours.changes - base.changes),
        last_at=max(ours.last_at, theirs.last_at),
    )


def _joined(base: tuple[str, ...], ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    """The names of both sides, without those that were removed here."""
    return tuple(sorted((set(theirs) | set(ours)) - (set(base) - set(ours))))


def _used(base: dict[str, int], ours: dict[str, int], theirs: dict[str, int]) -> dict[str, int]:
    """In which turn each tool was used last: what was used here since comes last."""
    used = dict(theirs)
    for tool, turn in ours.items():
        if base.get(tool) != turn:
            used[tool] = max(turn, used.pop(tool, 0))
    return dict(list(used.items())[-MAX_USED:])
