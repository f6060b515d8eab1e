"""Records put into the tables."""

import math
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from operator import attrgetter
from typing import Any, Final, get_args
from uuid import UUID

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, StatementError

from riglm.adapters.analytics import rows
from riglm.adapters.analytics.database import FalseCorruptionError, FileReplacedError, SqlStore
from riglm.adapters.analytics.engine import is_conflict, reason_of
from riglm.adapters.analytics.prediction_store import storable
from riglm.adapters.analytics.rows import delete_rows, insert_into, keep_lists, rows_in, upsert
from riglm.adapters.analytics.tables import (
    exposure,
    forgotten,
    invocation,
    learned_pair,
    session,
    teacher,
    token_usage,
    tool_catalog,
    tool_pin,
    training_update,
)
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ToolInvocation
from riglm.domain.learning import LearnedPair, PairSource
from riglm.domain.retention import ErasureRequest, ErasureScope
from riglm.domain.session import Session
from riglm.domain.session_cost import TokenUsage
from riglm.domain.tool import TTL_SECONDS, StoredToolCatalog
from riglm.domain.tool_pin import ToolPin, merge_pins
from riglm.ports.analytics import LearnedPairsDeleted, Record, RecordRejectedError, SessionClosed


def note(connection: sa.Connection, whom: Sequence[ErasureRequest]) -> None:
    """Note who is forgotten; what was stored of them is still to be removed. Of two times the later one counts."""
    new = [{"whose": each.whose.value, "key": each.key, "at": float(each.at), "is_done": False} for each in whom]
    upsert(
        connection,
        forgotten,
        new,
        merge=lambda given: {"at": sa.case((given.at > forgotten.c.at, given.at), else_=forgotten.c.at)},
    )


def without_forgotten(
    connection: sa.Connection, records: Sequence[Record], names: Callable[[str], str]
) -> Sequence[Record]:
    """Return the records without those of erased subjects; sessions erased before they were stored are noted.

    `names` gives the keyed hash of the name that a client gave itself.
    """
    if connection.execute(sa.select(forgotten.c.key).limit(1)).first() is None:
        return records
    sessions = [record for record in records if isinstance(record, Session | TokenUsage)]
    hashed = {name: names(name) for name in map(_client_of, sessions)}
    subjects = {each.id: _subjects_of(each, hashed) for each in sessions}
    keys = {str(id_) for id_ in map(_session_of, records) if id_ is not None}
    keys |= {key for each in subjects.values() for _, key in each}
    for record in records:
        if isinstance(record, LearnedPair):
            keys |= {record.scope, *(key for _, key in _teacher_of(record))}
    query = sa.select(forgotten.c.whose, forgotten.c.key, forgotten.c.at)
    found = rows_in(connection, query, forgotten.c.key, keys)
    erased: dict[tuple[str, str], float] = {(whose, key): at for whose, key, at in found}
    late = []
    for each in sessions:
        key = (ErasureScope.SESSION, str(_session_of(each)))
        times = [erased[whose] for whose in subjects[each.id] if erased.get(whose, -math.inf) >= each.started_at]
        if times and key not in erased:
            late.append(ErasureRequest(whose=ErasureScope.SESSION, key=key[1], at=max(times)))
    if late:
        note(connection, late)
    erased |= {(ErasureScope.SESSION, each.key): each.at for each in late}
    return [record for record in records if not _is_erased(record, erased)]


def _is_erased(record: Record, erased: Mapping[tuple[str, str], float]) -> bool:
    if (ErasureScope.SESSION, str(_session_of(record))) in erased:
        return True
    if not isinstance(record, LearnedPair):
        return False
    whose = _teacher_of(record)
    if record.scope:  # the empty one is shared by all callers
        whose.append((ErasureScope.PRINCIPAL, record.scope))
    return any(erased.get(each, -1.0) >= record.updated_at for each in whose)


def _client_of(session: Session | TokenUsage) -> str:
    return session.client if isinstance(session, TokenUsage) else session.client.name


def _subjects_of(session: Session | TokenUsage, hashed: Mapping[str, str]) -> list[tuple[ErasureScope, str]]:
    name = _client_of(session)
    clients = (session.client_id, hashed[name], name)  # the name itself is what an earlier riglm noted
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
        case ToolInvocation() | Exposure() | LearnedPair() | SessionClosed() | TokenUsage():
            return record.session_id
    return None


def keep_teachers(connection: sa.Connection, sessions: Sequence[UUID], names: Callable[[str], str]) -> None:
    """Put whose these sessions are in the place of what they taught; `names` hashes the name of a client."""
    known = sa.select(
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
    connection.execute(sa.delete(training_update).where(training_update.c.session_id.in_(sessions)))


def note_teachers(connection: sa.Connection, example: Iterable[tuple[UUID, PairSource]]) -> None:
    """Note who taught which pairs, in sessions that are not there any more."""
    columns = [column.name for column in teacher.c]
    found = sorted((pair, by.client_id, by.client_name, by.principal) for pair, by in example)
    if found:
        kept = [dict(zip(columns, row, strict=True)) for row in found]
        connection.execute(insert_into(connection, teacher).on_conflict_do_nothing(), kept)


def learned_only_from(connection: sa.Connection, whom: ErasureRequest) -> Sequence[UUID]:
    """The learned pairs of which nothing is known but that this client or principal taught them."""
    other = teacher.alias()
    by_another = sa.exists().where(sa.and_(other.c.pair_id == teacher.c.pair_id, sa.not_(_is(other, whom))))
    lately = sa.exists().where(training_update.c.pair_id == teacher.c.pair_id)
    there = sa.exists().where(learned_pair.c.id == teacher.c.pair_id)
    query = sa.select(teacher.c.pair_id).where(_is(teacher, whom), ~by_another, ~lately, there).distinct()
    return connection.execute(query).scalars().all()


def forget_teacher(connection: sa.Connection, whom: ErasureRequest) -> None:
    """Keep nowhere that this client or principal taught anything."""
    connection.execute(sa.delete(teacher).where(_is(teacher, whom)))


def _is(kept: sa.FromClause, whom: ErasureRequest) -> sa.ColumnElement[bool]:
    """Of a row: this client or principal."""
    match whom.whose:
        case ErasureScope.PRINCIPAL:
            return kept.c.principal == whom.key
        case ErasureScope.CLIENT:
            return sa.or_(kept.c.client_id == whom.key, kept.c.client_name == whom.key)
    return sa.false()


_BAD_VALUE: Final = (ValueError, TypeError, AttributeError, OverflowError)
_UNBINDABLE: Final = "Error binding parameter"  # Python's words for a type that SQLite does not know
_LIMIT_EXCEEDED: Final = "54"  # the class of PostgreSQL's errors about values that are too large for it


_ATTEMPTS: Final = 3  # of a transaction that conflicted, or met a file that was replaced or repaired


class SqlRecording(SqlStore):
    """Stores records; part of `SqlAnalytics`."""

    def record_many(self, records: Sequence[Record]) -> None:
        for more in reversed(range(_ATTEMPTS)):
            try:
                if all(type(record) is ToolInvocation for record in records) and self._database.append(
                    lambda connection: _append_calls(connection, records)  # type: ignore[arg-type]
                ):
                    return
                with self._database.writing() as connection:
                    store(connection, records, self._names)
            except FalseCorruptionError as error:
                if not more:  # before, another process may have mended it just now
                    raise RecordRejectedError(f"a record cannot be stored: {error}") from error
            except AnalyticsUnavailableError as error:
                if not more or not (is_conflict(error) or isinstance(error, FileReplacedError)):
                    raise
            else:
                return


def store(connection: sa.Connection, records: Sequence[Record], names: Callable[[str], str]) -> None:
    """Store records in the transaction of `connection`; `names` gives the keyed hash of a client's name.

    Raises `RecordRejectedError` when one of them does not fit, or when learned pairs have no place; other failures
    are the database's own.
    """
    with _refusing():
        _store(connection, without_forgotten(connection, records, names))


_CALL_COLUMNS: Final = tuple(invocation.c.keys())
_INTO: Final = f"INSERT INTO invocation ({', '.join(_CALL_COLUMNS)})".replace("timestamp", '"timestamp"')
_ONE: Final = f"({', '.join('?' * len(_CALL_COLUMNS))})"
_UNLESS_STORED: Final = "ON CONFLICT (id) DO NOTHING"
_INSERT: Final = f"{_INTO} VALUES {_ONE} {_UNLESS_STORED}"
_AT_ONCE: Final = 64
_INSERT_MANY: Final = f"{_INTO} VALUES {', '.join([_ONE] * _AT_ONCE)} {_UNLESS_STORED}"
_INSERT_JSON: Final = f"{_INTO} SELECT * FROM json_populate_recordset(NULL::invocation, %s::json) {_UNLESS_STORED}"  # noqa: S608
_ERASED: Final = "SELECT 1 FROM forgotten WHERE whose = 'session' AND \"key\" = ?"


def _append_calls(connection: sqlite3.Connection, calls: Sequence[ToolInvocation]) -> bool:
    """Insert calls by SQLite's driver, which takes a fraction of SQLAlchemy's time; many rows in a statement take less.

    Return False if they cannot be stored that way: calls of an erased session are among them, or one does not fit.
    """
    if any(connection.execute(_ERASED, (str(id_),)).fetchall() for id_ in {call.session_id for call in calls}):
        return False
    try:
        values = _sqlite_values(calls)
        many = len(values) // _AT_ONCE * _AT_ONCE
        for start in range(0, many, _AT_ONCE):
            connection.execute(_INSERT_MANY, list(chain.from_iterable(values[start : start + _AT_ONCE])))
        connection.executemany(_INSERT, values[many:])
    except sqlite3.OperationalError:
        raise
    except (sqlite3.Error, *_BAD_VALUE):
        return False
    return True


def _insert_calls(connection: sa.Connection, calls: Sequence[ToolInvocation]) -> None:
    """Insert the calls that are not stored.

    PostgreSQL gets the rows as one JSON text: one message and one statement, several times as fast as a statement for
    each row.
    """
    if not calls:
        return
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(_INSERT, _sqlite_values(calls))
    else:
        text = _Storable().__getitem__
        new = [rows.invocation_row(call, text) for call in calls]
        connection.exec_driver_sql(_INSERT_JSON, (msgspec.json.encode(new).decode(),))


def _sqlite_values(calls: Sequence[ToolInvocation]) -> list[tuple[Any, ...]]:
    text = _Storable().__getitem__
    return [rows.invocation_values(call, text, call.id.bytes, call.session_id.bytes) for call in calls]


class _Storable(dict[str, str]):
    """Texts as they can be stored; calls have few different names."""

    def __missing__(self, text: str) -> str:
        found = self[text] = storable(text)
        return found


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


_KINDS: Final = frozenset(get_args(Record))


def _store(connection: sa.Connection, records: Sequence[Record]) -> None:
    given: defaultdict[type, list[Any]] = defaultdict(list)
    for record in records:
        if type(record) not in _KINDS:
            raise TypeError(f"{type(record).__name__} is no record")
        given[type(record)].append(record)
    sessions: dict[UUID, Session] = {each.id: each for each in given[Session]}
    lists = [each.tools_available for each in sessions.values()]
    lists += [names for each in given[Exposure] for names in (each.shown, each.available)]
    keep_lists(connection, lists)
    upsert(
        connection,
        session,
        [rows.session_row(each) for each in sessions.values()],
        merge=lambda given: {
            "started_at": session.c.started_at,
            "ended_at": sa.func.coalesce(session.c.ended_at, given.ended_at),
            "project": sa.func.coalesce(sa.func.nullif(given.project, ""), session.c.project),
        },
    )
    _insert_calls(connection, given[ToolInvocation])
    if given[Exposure]:
        shown = list(map(rows.exposure_row, given[Exposure]))
        connection.execute(insert_into(connection, exposure).on_conflict_do_nothing(), shown)
    end_sessions(connection, {each.session_id: each.ended_at for each in given[SessionClosed]})
    _put_tool_catalogs(connection, given[StoredToolCatalog])
    _put_tool_pins(connection, given[ToolPin])
    upsert(connection, token_usage, list(map(asdict, given[TokenUsage])), newest_by=token_usage.c.requests)
    learned = [record for record in records if isinstance(record, LearnedPair | LearnedPairsDeleted)]
    if learned:
        with _sparing_the_rest():
            _store_learned(connection, learned)


def _put_tool_catalogs(connection: sa.Connection, given: Sequence[StoredToolCatalog]) -> None:
    """Store catalogs unless there are newer ones, and remove those that have not been refreshed for long."""
    newest = {(each.fingerprint, each.variant): each for each in sorted(given, key=attrgetter("updated_at"))}
    if newest:
        upsert(connection, tool_catalog, list(map(asdict, newest.values())), newest_by=tool_catalog.c.updated_at)
        is_past = tool_catalog.c.updated_at <= time.time()  # a wrong clock must not remove the others
        latest = sa.select(sa.func.max(tool_catalog.c.updated_at)).where(is_past).scalar_subquery()
        connection.execute(sa.delete(tool_catalog).where(tool_catalog.c.updated_at < latest - TTL_SECONDS))


def _put_tool_pins(connection: sa.Connection, given: Sequence[ToolPin]) -> None:
    """Store pins of new tools, and of known ones what was listed last: approved is what is in the store."""
    upsert(
        connection,
        tool_pin,
        list(map(asdict, merge_pins((), given))),
        merge=lambda given: {
            "digest": tool_pin.c.digest,
            "definition": sa.case((tool_pin.c.digest == given.seen_digest, given.seen), else_=tool_pin.c.definition),
            "pinned_at": tool_pin.c.pinned_at,
        },
        newest_by=tool_pin.c.seen_at,
    )


def end_sessions(connection: sa.Connection, ends: Mapping[UUID, float]) -> None:
    """Note when sessions ended, by a clock that may have been set back: none ends before it starts."""
    if ends:
        at, start = sa.bindparam("at", type_=session.c.ended_at.type), session.c.started_at
        end = sa.case((start > at, start), else_=at)
        statement = sa.update(session).where(session.c.id == sa.bindparam("closed")).values(ended_at=end)
        connection.execute(statement, [{"closed": id_, "at": rows.finite(at)} for id_, at in ends.items()])


def _store_learned(connection: sa.Connection, records: Sequence[LearnedPair | LearnedPairsDeleted]) -> None:
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
    delete_rows(connection, learned_pair.c.id, list(forgotten))
    if learned:
        new = [rows.learned_pair_row(pair) for pair in learned.values()]
        upsert(connection, learned_pair, new, newest_by=learned_pair.c.updated_at)
        if connection.dialect.name == "postgresql":
            from riglm.adapters.analytics import postgresql  # noqa: PLC0415  # the driver is an extra

            vectors = ((pair.id, pair.vector, pair.updated_at) for pair in learned.values())
            postgresql.keep_vectors(connection, vectors)
        _note_lessons(connection, [pair for pair in records if isinstance(pair, LearnedPair) and pair.id in learned])


def _note_lessons(connection: sa.Connection, pairs: Sequence[LearnedPair]) -> None:
    """Note which sessions taught the pairs: when one is forgotten, what only it taught is forgotten with it.

    If its session is missing, for example because it was purged, its owner is recorded.
    """
    there = rows.sessions_there(connection, {pair.session_id for pair in pairs if pair.session_id is not None})
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
