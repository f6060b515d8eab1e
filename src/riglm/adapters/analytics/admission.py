"""Who was forgotten, as the writer asks before it stores a batch, in the transaction that stores it.

So it does not matter in which process, queue or spool a record still waits.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from sqlalchemy import Connection, case, select

from riglm.adapters.analytics.lookups import insert_into, slices
from riglm.adapters.analytics.tables import forgotten
from riglm.domain.exposure import Exposure
from riglm.domain.forgetting import Forgotten, Whose
from riglm.domain.invocation import ToolInvocation
from riglm.domain.learning import LearnedPair
from riglm.domain.session import Session
from riglm.ports.analytics import Record, SessionClosed


def note(connection: Connection, whom: Sequence[Forgotten]) -> None:
    """Note who is forgotten; what was stored of them is still to be removed. Of two times the later one counts."""
    new_note = insert_into(connection, forgotten)
    later = case((new_note.excluded.at > forgotten.c.at, new_note.excluded.at), else_=forgotten.c.at)
    taken = {"at": later, "is_done": new_note.excluded.is_done}
    upsert = new_note.on_conflict_do_update(index_elements=["whose", "key"], set_=taken)
    new = [{"whose": each.whose.value, "key": each.key, "at": float(each.at), "is_done": False} for each in whom]
    connection.execute(upsert, new)


def without_forgotten(
    connection: Connection, records: Sequence[Record], names: Callable[[str], str]
) -> Sequence[Record]:
    """Return the records without those of erased subjects; sessions erased before they were stored are noted.

    `names` gives the keyed hash of the name that a client gave itself.
    """
    if connection.execute(select(forgotten.c.key).limit(1)).first() is None:
        return records
    unwanted = _Unwanted(connection, records, names)
    if unwanted.sessions_by_person:
        note(connection, unwanted.sessions_by_person)
    return [record for record in records if not unwanted.holds(record)]


class _Unwanted:
    """Return which records of a batch belong to an erased subject."""

    def __init__(self, connection: Connection, records: Sequence[Record], names: Callable[[str], str]) -> None:
        sessions = [record for record in records if isinstance(record, Session)]
        named = {str(id_) for id_ in map(_session_of, records) if id_ is not None}
        self._names = {name: names(name) for name in {session.client.name for session in sessions}}
        pairs = [record for record in records if isinstance(record, LearnedPair)]
        persons = {key for session in sessions for _, key in self._persons(session)}
        persons |= {key for pair in pairs for _, key in _teacher_of(pair)}
        scopes = {pair.scope for pair in pairs}
        self._at: dict[tuple[str, str], float] = {}
        for some in slices(sorted(named | persons | scopes)):
            query = select(forgotten.c.whose, forgotten.c.key, forgotten.c.at).where(forgotten.c.key.in_(some))
            self._at |= {(whose, key): at for whose, key, at in connection.execute(query)}
        self.sessions_by_person = [
            Forgotten(whose=Whose.SESSION, key=str(session.id), at=at)
            for session in sessions
            if (at := self._since(session)) is not None and (Whose.SESSION, str(session.id)) not in self._at
        ]
        self._at |= {(Whose.SESSION, each.key): each.at for each in self.sessions_by_person}

    def holds(self, record: Record) -> bool:
        """True if this record belongs to an erased subject."""
        id_ = _session_of(record)
        if id_ is not None and (Whose.SESSION, str(id_)) in self._at:
            return True
        if not isinstance(record, LearnedPair):
            return False
        whose = _teacher_of(record)
        if record.scope:  # the empty one is shared by all callers
            whose.append((Whose.PRINCIPAL, record.scope))
        return any(self._at.get(each, -1.0) >= record.updated_at for each in whose)

    def _since(self, session: Session) -> float | None:
        """When it was that the client or principal of a session that had started already was forgotten."""
        times = [self._at[key] for key in self._persons(session) if key in self._at]
        return max((at for at in times if at >= session.started_at), default=None)

    def _persons(self, session: Session) -> list[tuple[Whose, str]]:
        name = session.client.name
        clients = (session.client_id, self._names[name], name)  # the name itself is what an earlier riglm noted
        return [*((Whose.CLIENT, key) for key in clients), (Whose.PRINCIPAL, session.principal)]


def _teacher_of(pair: LearnedPair) -> list[tuple[Whose, str]]:
    by = pair.teacher
    if by is None:
        return []
    return [(Whose.CLIENT, by.client_id), (Whose.CLIENT, by.client_name), (Whose.PRINCIPAL, by.principal)]


def _session_of(record: Record) -> UUID | None:
    match record:
        case Session():
            return record.id
        case ToolInvocation() | Exposure() | LearnedPair() | SessionClosed():
            return record.session_id
    return None
