"""Records put into the tables."""

import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, bindparam, delete, func, update
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, StatementError

from riglm.adapters.analytics import pgvector, rows
from riglm.adapters.analytics.admission import without_forgotten
from riglm.adapters.analytics.bulk import insert_new
from riglm.adapters.analytics.choices import put_tool_catalogs
from riglm.adapters.analytics.engine import reason_of
from riglm.adapters.analytics.lists import keep_lists
from riglm.adapters.analytics.lookups import insert_into, sessions_there, slices
from riglm.adapters.analytics.rows import Row
from riglm.adapters.analytics.tables import exposure, invocation, learned_pair, lesson, session
from riglm.adapters.analytics.teachers import note_teachers
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ToolInvocation
from riglm.domain.learning import LearnedPair, Teacher
from riglm.domain.session import Session
from riglm.domain.tool_catalog import ToolCatalog
from riglm.ports.analytics import PairsForgotten, Record, RecordRefused, SessionClosed

_BAD_VALUE: Final = (ValueError, TypeError, AttributeError, OverflowError, struct.error)
_UNBINDABLE: Final = "Error binding parameter"  # Python's words for a type that SQLite does not know
_LIMIT_EXCEEDED: Final = "54"  # the class of PostgreSQL's errors about values that are too large for it


def store(connection: Connection, records: Sequence[Record], names: Callable[[str], str]) -> None:
    """Store records in the transaction of `connection`; `names` gives the keyed hash of a client's name.

    Raises `RecordRefused` when one of them does not fit, or when learned pairs have no place; other failures are the
    database's own.
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
        raise RecordRefused(f"a record does not fit the analytics store: {reason_of(error)}") from None
    except _BAD_VALUE as error:
        raise RecordRefused(f"a record does not fit the analytics store: {error}") from error


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
        raise RecordRefused(f"learned pairs cannot be stored: {reason_of(error)}") from error


def _is_of_the_table(error: DBAPIError) -> bool:
    if isinstance(error.orig, sqlite3.Error):
        return error.orig.sqlite_errorcode in {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT}
    return isinstance(error, ProgrammingError)


def _store(connection: Connection, records: Sequence[Record]) -> None:
    sessions: dict[UUID, Session] = {}
    ends: dict[UUID, float] = {}
    calls: list[Row] = []
    exposures: list[Exposure] = []
    learned: list[LearnedPair | PairsForgotten] = []
    catalogs: list[ToolCatalog] = []
    for record in records:
        match record:
            case ToolInvocation():
                calls.append(rows.invocation_row(record))
            case Session():
                sessions[record.id] = record
            case Exposure():
                exposures.append(record)
            case LearnedPair() | PairsForgotten():
                learned.append(record)
            case SessionClosed():
                ends[record.session_id] = record.ended_at
            case ToolCatalog():
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


def _upsert_sessions(connection: Connection, new: list[Row]) -> None:
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


def _store_learned(connection: Connection, records: Sequence[LearnedPair | PairsForgotten]) -> None:
    """Forget and learn in the order given: what is learned after it was forgotten stays."""
    forgotten: set[UUID] = set()
    learned: dict[UUID, LearnedPair] = {}
    for record in records:
        if isinstance(record, PairsForgotten):
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

    If its session is missing, for example purged before its lesson came, its owner is noted.
    """
    there = sessions_there(connection, {pair.session_id for pair in pairs if pair.session_id is not None})
    taught: set[tuple[UUID, UUID]] = set()
    late: set[tuple[UUID, Teacher]] = set()
    for pair in pairs:
        if pair.teacher is not None and pair.session_id not in there:
            late.add((pair.id, pair.teacher))
        elif pair.session_id is not None:
            taught.add((pair.id, pair.session_id))
    note_teachers(connection, late)
    if taught:
        note = insert_into(connection, lesson).on_conflict_do_nothing()
        connection.execute(note, [{"pair_id": pair, "session_id": by} for pair, by in sorted(taught)])
