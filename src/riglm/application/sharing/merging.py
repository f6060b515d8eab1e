"""What happened to a session in one process, put on top of what happened to it in others meanwhile."""

import msgspec

from riglm.application.sharing.session_record import Progress, SessionRecord
from riglm.domain.session_state import MOST_CALLS, MOST_USED


def merged(base: SessionRecord | None, ours: SessionRecord, theirs: SessionRecord) -> SessionRecord:
    """The record that holds both what changed here, from `base` to `ours`, and all that is in `theirs`.

    Nothing goes back to what it was at `base`: each call stays, a context that was said anywhere since counts, and of
    two the one that is merged last. Without a base, all that is here is new. Whoever knows that the session was
    forgotten is right, and the rest goes.
    """
    if ours.forgotten_at != theirs.forgotten_at:
        return max(ours, theirs, key=lambda record: record.forgotten_at)
    before = None if base is None or base.forgotten_at != ours.forgotten_at else base
    return msgspec.structs.replace(
        theirs,
        method=theirs.method if before is None or ours.method == before.method else ours.method,
        protocol_version=theirs.protocol_version or ours.protocol_version,
        keys={**theirs.keys, **ours.keys},
        sequence=max(ours.sequence, theirs.sequence),
        progress=_progress(None if before is None else before.progress, ours.progress, theirs.progress),
    )


def _progress(base: Progress | None, ours: Progress | None, theirs: Progress | None) -> Progress | None:
    if ours is None or theirs is None:
        return ours or theirs
    base = base or Progress()
    made_here = min(max(0, ours.made - base.made), len(ours.calls))
    calls = (*theirs.calls, *ours.calls[len(ours.calls) - made_here :])
    said_here = ours.context != base.context
    said_elsewhere = theirs.context != base.context
    listed = theirs if said_elsewhere and not said_here else ours
    return Progress(
        calls=calls[-MOST_CALLS:],
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
    return dict(list(used.items())[-MOST_USED:])
