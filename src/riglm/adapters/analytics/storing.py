"""Records put into the tables."""

import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    and_,
    bindparam,
    case,
    delete,
    exists,
    false,
    func,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, StatementError

from riglm.adapters.analytics import pgvector, rows
from riglm.adapters.analytics.bulk import insert_new
from riglm.adapters.analytics.engine import reason_of
from riglm.adapters.analytics.prediction_store import put_tool_catalogs
from riglm.adapters.analytics.rows import DatabaseRow, insert_into, keep_lists, sessions_there, slices
from riglm.adapters.analytics.tables import (
    exposure,
    forgotten,
    invocation,
    learned_pair,
    session,
    teacher,
    training_update,
)
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ToolInvocation
from riglm.domain.learning import LearnedPair, PairSource
from riglm.domain.retention import ErasureRequest, ErasureScope
from riglm.domain.session import Session
from riglm.domain.tool import StoredToolCatalog
from riglm.ports.analytics import LearnedPairsDeleted, Record, RecordRejectedError, SessionClosed


def note(connection: Connection, whom: Sequence[ErasureRequest]) -> None:
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
    unwanted = _ErasedRecord(connection, records, names)
    if unwanted.sessions_by_person:
        note(connection, unwanted.sessions_by_person)
    return [record for record in records if not unwanted.holds(record)]


class _ErasedRecord:
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
            ErasureRequest(whose=ErasureScope.SESSION, key=str(session.id), at=at)
            for session in sessions
            if (at := self._since(session)) is not None and (ErasureScope.SESSION, str(session.id)) not in self._at
        ]
        self._at |= {(ErasureScope.SESSION, each.key): each.at for each in self.sessions_by_person}

    def holds(self, record: Record) -> bool:
        """True if this record belongs to an erased subject."""
        id_ = _session_of(record)
        if id_ is not None and (ErasureScope.SESSION, str(id_)) in self._at:
            return True
        if not isinstance(record, LearnedPair):
            return False
        whose = _teacher_of(record)
        if record.scope:  # the empty one is shared by all callers
            whose.append((ErasureScope.PRINCIPAL, record.scope))
        return any(self._at.get(each, -1.0) >= record.updated_at for each in whose)

    def _since(self, session: Session) -> float | None:
        """When it was that the client or principal of a session that had started already was forgotten."""
        times = [self._at[key] for key in self._persons(session) if key in self._at]
        return max((at for at in times if at >= session.started_at), default=None)

    def _persons(self, session: Session) -> list[tuple[ErasureScope, str]]:
        name = session.client.name
        clients = (session.client_id, self._names[name], name)  # the name itself is what an earlier riglm noted
        return [*((ErasureScope.CLIENT, key) for key in clients), (ErasureScope.PRINCIPAL, session.principal)]


def _teacher_of(pair: LearnedPair) -> list[tuple[ErasureScope, str]]:
    by = pair.teacher
    if by is None:
        return []
    return [
        (ErasureScope.CLIENT, by.client_id),
        (ErasureScope.CLIENT, by.client_name),
        (ErasureScope.PRINCIPAL, by.principal),
    ]


def _session_of(record: Record) -> UUID | None:
    match record:
        case Session():
            return record.id
        case ToolInvocation() | Exposure() | LearnedPair() | SessionClosed():
            return record.session_id
    return None


def keep_teachers(connection: Connection, sessions: Sequence[UUID], names: Callable[[str], str]) -> None:
    """Put whose these sessions are in the place of what they taught; `names` hashes the name of a client."""
    known = select(
        training_update.c.pair_id, session.c.client_id, session.c.client_name, session.c.principal
    ).join_from(training_update, session, training_update.c.session_id == session.c.id)
    found = connection.execute(known.where(training_update.c.session_id.in_(sessions)).distinct()).all()
    note_teachers(
        connection,
        {
            (pair, PairSource(client_id=client, client_name=names(name), principal=principal))
            for pair, client, name, principal in found
        },
    )
    connection.execute(delete(training_update).where(training_update.c.session_id.in_(sessions)))


def note_teachers(connection: Connection, example: Iterable[tuple[UUID, PairSource]]) -> None:
    """Note who taught which pairs, in sessions that are not there any more."""
    columns = [column.name for column in teacher.c]
    found = sorted((pair, by.client_id, by.client_name, by.principal) for pair, by in example)
    if found:
        kept = [dict(zip(columns, row, strict=True)) for row in found]
        connection.execute(insert_into(connection, teacher).on_conflict_do_nothing(), kept)


def learned_only_from(connection: Connection, whom: ErasureRequest) -> Sequence[UUID]:
    """The learned pairs of which nothing is known but that this client or principal taught them."""
    other = teacher.alias()
    by_another = exists().where(and_(other.c.pair_id == teacher.c.pair_id, not_(_is(other, whom))))
    lately = exists().where(training_update.c.pair_id == teacher.c.pair_id)
    there = exists().where(learned_pair.c.id == teacher.c.pair_id)
    query = select(teacher.c.pair_id).where(_is(teacher, whom), ~by_another, ~lately, there).distinct()
    return connection.execute(query).scalars().all()


def forget_teacher(connection: Connection, whom: ErasureRequest) -> None:
    """Keep nowhere that this client or principal taught anything."""
    connection.execute(delete(teacher).where(_is(teacher, whom)))


def _is(kept: FromClause, whom: ErasureRequest) -> ColumnElement[bool]:
    """Of a row: this client or principal."""
    match whom.whose:
        case ErasureScope.PRINCIPAL:
            return kept.c.principal == whom.key
        case ErasureScope.CLIENT:
            return or_(kept.c.client_id == whom.key, kept.c.client_name == whom.key)
    return false()


_BAD_VALUE: Final = (ValueError, TypeError, AttributeError, OverflowError, struct.error)
_UNBINDABLE: Final = "Error binding parameter"  # Python's words for a type that SQLite does not know
_LIMIT_EXCEEDED: Final = "54"  # the class of PostgreSQL's errors about values that are too large for it


def store(connection: Connection, records: Sequence[Record], names: Callable[[str], str]) -> None:
    """Store records in the transaction of `connection`; `names` gives the keyed hash of a client's name.

    Raises `RecordRejectedError` when one of them does not fit, or when learned pairs have no place; other failures
    are the database's own.
    """
    with _refusing():
        _store(connection, without_forgotten(connection, records, names))


@contextmanager
def _refusing() -> Iterator[None]:
    """Distinguish a value that the database cannot hold from a database that does not work."""
    try:
        yield
    except StatementError as error:
        if isinstance(error, DBAPIError) and not _is_of_a_value(error):
            raise
        # Not from the error: PostgreSQL quotes the whole row in it.
        raise RecordRejectedError(f"a record does not fit the analytics store: {reason_of(error)}") from None
    except _BAD_VALUE as error:
        raise RecordRejectedError(f"a record does not fit the analytics store: {error}") from error


def _is_of_a_value(error: DBAPIError) -> bool:
    if isinstance(error, IntegrityError | DataError):
        return True
    if isinstance(error.orig, sqlite3.Error):
        return str(error.orig).startswith(_UNBINDABLE)
    return str(getattr(error.orig, "sqlstate", "")).startswith(_LIMIT_EXCEEDED)


@contextmanager
def _sparing_the_rest() -> Iterator[None]:
    """Refuse learned pairs when their table is missing or broken: what was called must not wait for that."""
    try:
        yield
    except DBAPIError as error:
        if not _is_of_the_table(error):
            raise
        raise RecordRejectedError(f"learned pairs cannot be stored: {reason_of(error)}") from error


def _is_of_the_table(error: DBAPIError) -> bool:
    if isinstance(error.orig, sqlite3.Error):
        return error.orig.sqlite_errorcode in {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT}
    return isinstance(error, ProgrammingError)


def _store(connection: Connection, records: Sequence[Record]) -> None:
    sessions: dict[UUID, Session] = {}
    ends: dict[UUID, float] = {}
    calls: list[DatabaseRow] = []
    exposures: list[Exposure] = []
    learned: list[LearnedPair | LearnedPairsDeleted] = []
    catalogs: list[StoredToolCatalog] = []
    for record in records:
        match record:
            case ToolInvocation():
                calls.append(rows.invocation_row(record))
            case Session():
                sessions[record.id] = record
            case Exposure():
                exposures.append(record)
            case LearnedPair() | LearnedPairsDeleted():
                learned.append(record)
            case SessionClosed():
                ends[record.session_id] = record.ended_at
            case StoredToolCatalog():
                catalogs.append(record)
            case _:
                raise TypeError(f"{type(record).__name__} is no record")
    lists = [session.tools_available for session in sessions.values()]
    lists += [names for exposure in exposures for names in (exposure.shown, exposure.available)]
    keep_lists(connection, lists)
    _upsert_sessions(connection, [rows.session_row(session) for session in sessions.values()])
    insert_new(connection, invocation, calls)
    insert_new(connection, exposure, [rows.exposure_row(exposure) for exposure in exposures])
    end_sessions(connection, ends)
    put_tool_catalogs(connection, catalogs)
    if learned:
        with _sparing_the_rest():
            _store_learned(connection, learned)


def _upsert_sessions(connection: Connection, new: list[DatabaseRow]) -> None:
    if new:
        statement = insert_into(connection, session)
        given = statement.excluded
        taken = {column.name: given[column.name] for column in session.c if column.name not in {"id", "started_at"}}
        taken["ended_at"] = func.coalesce(session.c.ended_at, given.ended_at)
        connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=taken), new)


def end_sessions(connection: Connection, ends: Mapping[UUID, float]) -> None:
    """Note when sessions ended."""
    if ends:
        statement = update(session).where(session.c.id == bindparam("closed")).values(ended_at=bindparam("at"))
        connection.execute(statement, [{"closed": id_, "at": rows.finite(at)} for id_, at in ends.items()])


def _store_learned(connection: Connection, records: Sequence[LearnedPair | LearnedPairsDeleted]) -> None:
    """Forget and learn in the order given: what is learned after it was forgotten stays."""
    forgotten: set[UUID] = set()
    learned: dict[UUID, LearnedPair] = {}
    for record in records:
        if isinstance(record, LearnedPairsDeleted):
            forgotten.update(record.ids)
            for id_ in record.ids:
                learned.pop(id_, None)
        elif record.id not in learned or learned[record.id].updated_at <= record.updated_at:
            learned[record.id] = record
    for some in slices(list(forgotten)):
        connection.execute(delete(learned_pair).where(learned_pair.c.id.in_(some)))
    if learned:
        statement = insert_into(connection, learned_pair)
        given = statement.excluded
        newer = given.updated_at >= learned_pair.c.updated_at
        taken = {column.name: given[column.name] for column in learned_pair.c if column.name != "id"}
        upsert = statement.on_conflict_do_update(index_elements=["id"], set_=taken, where=newer)
        connection.execute(upsert, [rows.learned_pair_row(pair) for pair in learned.values()])
        pgvector.keep(connection, ((pair.id, pair.vector, pair.updated_at) for pair in learned.values()))
        _note_lessons(connection, [pair for pair in records if isinstance(pair, LearnedPair) and pair.id in learned])


def _note_lessons(connection: Connection, pairs: Sequence[LearnedPair]) -> None:
    """Note which sessions taught the pairs: when one is forgotten, what only it taught is forgotten with it.

    If its session is missing, for example because it was purged, its owner is recorded.
    """
    there = sessions_there(connection, {pair.session_id for pair in pairs if pair.session_id is not None})
    example: set[tuple[UUID, UUID]] = set()
    late: set[tuple[UUID, PairSource]] = set()
    for pair in pairs:
        if pair.teacher is not None and pair.session_id not in there:
            late.add((pair.id, pair.teacher))
        elif pair.session_id is not None:
            example.add((pair.id, pair.session_id))
    note_teachers(connection, late)
    if example:
        note = insert_into(connection, training_update).on_conflict_do_nothing()
        connection.execute(note, [{"pair_id": pair, "session_id": by} for pair, by in sorted(example)])
