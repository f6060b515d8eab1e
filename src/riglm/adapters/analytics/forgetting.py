"""Erases a client, a session or a principal.

The erased subject is noted first, and so is each of its sessions; from then on the writer stores nothing of them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Column, ColumnElement, Connection, Table, and_, delete, exists, false, func, or_, select, update

from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.rows import insert_into, slices
from riglm.adapters.analytics.storing import forget_teacher, learned_only_from, note
from riglm.adapters.analytics.tables import (
    exposure,
    forgotten,
    invocation,
    learned_pair,
    override,
    session,
    teacher,
    training_update,
    warm_set,
)
from riglm.domain.policy import OverrideScope
from riglm.domain.retention import ErasureRequest, ErasureScope, RemovedCounts
from riglm.domain.session import parsed_uuid

_SESSIONS_BATCH_SIZE: Final = 50
_HASH: Final = re.compile(r"[0-9a-f]{32}")

NameHasher = Callable[[str], str]
"""Gives the keyed hash of the name that a client gave itself."""


def known_of(connection: Connection, whom: ErasureRequest, names: NameHasher) -> RemovedCounts:
    """Return the number of records of a subject, for kinds that are stored by session or principal."""
    chosen = _sessions_of(connection, whom, names)

    def of_sessions(table: Table) -> int:
        theirs = select(session.c.id).where(chosen)
        return _count(connection, table, table.c.session_id.in_(theirs))

    return RemovedCounts(
        sessions=_count(connection, session, chosen),
        invocations=of_sessions(invocation),
        exposures=of_sessions(exposure),
        learned_pairs=len(_pairs_of(connection, whom)),
        overrides=_count(connection, override, _overrides_of(whom)),
        warm_sets=_count(connection, warm_set, _warm_sets_of(connection, whom, names)),
    )


def forget(database: Database, whom: ErasureRequest, at_once: int, names: NameHasher) -> Iterator[RemovedCounts]:
    """Note who is forgotten, then remove all that is known of them, in steps."""
    with database.writing() as connection:
        note(connection, [whom])
    yield RemovedCounts()
    yield from finish_forgetting(database, at_once, names)


def finish_forgetting(database: Database, at_once: int, names: NameHasher) -> Iterator[RemovedCounts]:
    """Remove what is left of all who were forgotten, in steps."""
    _hash_names(database, names)
    persons = _unfinished(database, ErasureScope.CLIENT) + _unfinished(database, ErasureScope.PRINCIPAL)
    if persons:
        _outlast_writers(database)
    for whom in persons:
        yield from _note_sessions(database, whom, at_once, names)
        with _overwriting(database) as connection:
            removed = _remove_what_is_personal(connection, whom, names)
            _done(connection, whom.whose, [whom.key])
        yield removed
    sessions = _unfinished(database, ErasureScope.SESSION)
    if sessions:
        _outlast_writers(database)
    for start in range(0, len(sessions), _SESSIONS_BATCH_SIZE):
        yield from _remove_sessions(database, sessions[start : start + _SESSIONS_BATCH_SIZE], at_once)


def forgotten_sessions(connection: Connection, since: float) -> list[ErasureRequest]:
    """The sessions that were to be forgotten at this time or later."""
    query = select(forgotten.c.key, forgotten.c.at).where(
        forgotten.c.whose == ErasureScope.SESSION.value, forgotten.c.at >= since
    )
    return [ErasureRequest(whose=ErasureScope.SESSION, key=key, at=at) for key, at in connection.execute(query)]


def forgettings(connection: Connection, since: float) -> float:
    """Return a number that grows whenever a subject is erased after that time; 0 without any."""
    query = select(func.sum(forgotten.c.at - since)).where(forgotten.c.at > since)
    return float(connection.execute(query).scalar_one() or 0.0)


def _sessions_of(connection: Connection, whom: ErasureRequest, names: NameHasher) -> ColumnElement[bool]:
    if whom.whose is ErasureScope.SESSION:
        return session.c.id == parsed_uuid(whom.key)
    if whom.whose is ErasureScope.PRINCIPAL:
        mine: ColumnElement[bool] = session.c.principal == whom.key
    else:
        mine = or_(session.c.client_id == whom.key, _is_named(connection, session.c.client_name, whom, names))
    return and_(mine, session.c.started_at <= whom.at)


def _warm_sets_of(connection: Connection, whom: ErasureRequest, names: NameHasher) -> ColumnElement[bool]:
    match whom.whose:
        case ErasureScope.PRINCIPAL:
            return warm_set.c.principal == whom.key
        case ErasureScope.CLIENT:
            return _is_named(connection, warm_set.c.client, whom, names)
    return false()


def _is_named(
    connection: Connection, column: Column[str], whom: ErasureRequest, names: NameHasher
) -> ColumnElement[bool]:
    known = connection.execute(select(column).distinct()).scalars()
    return column.in_([name for name in known if whom.key == names(name)])


def _pairs_of(connection: Connection, whom: ErasureRequest) -> set[UUID]:
    """The pairs in the scope of a principal, and those that only they taught in sessions that are purged.

    The empty scope is shared by all callers: there, the teacher decides.
    """
    pairs = set(learned_only_from(connection, whom))
    if whom.whose is ErasureScope.PRINCIPAL and whom.key:
        in_scope = and_(learned_pair.c.scope == whom.key, learned_pair.c.updated_at <= whom.at)
        pairs.update(connection.execute(select(learned_pair.c.id).where(in_scope)).scalars())
    return pairs


def _overrides_of(whom: ErasureRequest) -> ColumnElement[bool]:
    scope = OverrideScope.PRINCIPAL if whom.whose is ErasureScope.PRINCIPAL else OverrideScope.SESSION
    return and_(override.c.scope == scope.value, override.c.key == whom.key)


def _outlast_writers(database: Database) -> None:
    """Wait for the end of all transactions that looked for notes before these were there.

    SQLite has one writer at a time. On PostgreSQL a transaction that read the table holds it against this lock.
    """
    with database.writing() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"LOCK TABLE {forgotten.name} IN ACCESS EXCLUSIVE MODE")


def _unfinished(database: Database, whose: ErasureScope) -> list[ErasureRequest]:
    query = select(forgotten.c.key, forgotten.c.at).where(
        forgotten.c.whose == whose.value, forgotten.c.is_done.is_(False)
    )
    with database.reading() as connection:
        return [ErasureRequest(whose=whose, key=key, at=at) for key, at in connection.execute(query)]


def _done(connection: Connection, whose: ErasureScope, keys: Sequence[str]) -> None:
    chosen = and_(forgotten.c.whose == whose.value, forgotten.c.key.in_(keys))
    connection.execute(update(forgotten).where(chosen).values(is_done=True))


def _hash_names(database: Database, names: NameHasher) -> None:
    """Earlier riglms noted the names of clients as they are."""
    of_clients = select(forgotten).where(forgotten.c.whose == ErasureScope.CLIENT.value)
    with database.reading() as connection:
        rows = [dict(row) for row in connection.execute(of_clients).mappings() if not _HASH.fullmatch(row["key"])]
    plain = {row["key"]: {**row, "key": names(row["key"])} for row in rows if row["key"] != names(row["key"])}
    if plain:
        with _overwriting(database) as connection:
            connection.execute(insert_into(connection, forgotten).on_conflict_do_nothing(), list(plain.values()))
            gone = forgotten.c.key.in_(list(plain))
            connection.execute(delete(forgotten).where(forgotten.c.whose == ErasureScope.CLIENT.value, gone))


def _note_sessions(
    database: Database, whom: ErasureRequest, at_once: int, names: NameHasher
) -> Iterator[RemovedCounts]:
    start = None
    with database.reading() as connection:
        theirs = _sessions_of(connection, whom, names)
    while True:
        query = select(session.c.id).where(theirs).order_by(session.c.id).limit(at_once)
        with database.reading() as connection:
            ids = connection.execute(query if start is None else query.where(session.c.id > start)).scalars().all()
        if not ids:
            return
        start = ids[-1]
        with database.writing() as connection:
            note(connection, [ErasureRequest(whose=ErasureScope.SESSION, key=str(id_), at=whom.at) for id_ in ids])
        yield RemovedCounts()


def _remove_what_is_personal(connection: Connection, whom: ErasureRequest, names: NameHasher) -> RemovedCounts:
    """What is kept by client or principal and not by session; there is little of it."""
    pairs = list(_pairs_of(connection, whom))
    removed = RemovedCounts(
        learned_pairs=_delete(connection, learned_pair, learned_pair.c.id, pairs),
        warm_sets=connection.execute(delete(warm_set).where(_warm_sets_of(connection, whom, names))).rowcount,
    )
    forget_teacher(connection, whom)
    if whom.whose is not ErasureScope.PRINCIPAL:
        return removed
    return removed + RemovedCounts(overrides=connection.execute(delete(override).where(_overrides_of(whom))).rowcount)


def _remove_sessions(database: Database, sessions: Sequence[ErasureRequest], at_once: int) -> Iterator[RemovedCounts]:
    keys = [each.key for each in sessions]
    ids = [id_ for id_ in map(parsed_uuid, keys) if id_ is not None]
    for count in _rows_of(database, invocation, ids, at_once):
        yield RemovedCounts(invocations=count)
    for count in _rows_of(database, exposure, ids, at_once):
        yield RemovedCounts(exposures=count)
    with _overwriting(database) as connection:
        pairs = _taught_by_no_other(connection, ids)
        removed = RemovedCounts(learned_pairs=_delete(connection, learned_pair, learned_pair.c.id, pairs))
        connection.execute(
            delete(training_update).where(
                or_(training_update.c.session_id.in_(ids), training_update.c.pair_id.in_(pairs))
            )
        )
        made_for = and_(override.c.scope == OverrideScope.SESSION.value, override.c.key.in_(keys))
        removed += RemovedCounts(
            overrides=connection.execute(delete(override).where(made_for)).rowcount,
            sessions=_delete(connection, session, session.c.id, ids),
        )
        _done(connection, ErasureScope.SESSION, keys)
    yield removed


def _rows_of(database: Database, table: Table, sessions: Sequence[UUID], at_once: int) -> Iterator[int]:
    query = select(table.c.id).where(table.c.session_id.in_(sessions)).limit(at_once)
    while True:
        with database.reading() as connection:
            ids = connection.execute(query).scalars().all()
        if not ids:
            return
        with _overwriting(database) as connection:
            count = _delete(connection, table, table.c.id, ids)
        yield count


def _taught_by_no_other(connection: Connection, sessions: Sequence[UUID]) -> Sequence[UUID]:
    other = training_update.alias()
    by_another = exists().where(other.c.pair_id == training_update.c.pair_id, other.c.session_id.not_in(sessions))
    long_ago = exists().where(teacher.c.pair_id == training_update.c.pair_id)
    query = (
        select(training_update.c.pair_id)
        .where(training_update.c.session_id.in_(sessions), ~by_another, ~long_ago)
        .distinct()
    )
    return connection.execute(query).scalars().all()


@contextmanager
def _overwriting(database: Database) -> Iterator[Connection]:
    """A transaction to write in, in which SQLite fills with zeros what it removes, as it does not do by itself."""
    with database.writing() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA secure_delete=ON").close()
        yield connection


def _delete(connection: Connection, table: Table, column: ColumnElement[Any], values: Sequence[Any]) -> int:
    return sum(connection.execute(delete(table).where(column.in_(some))).rowcount for some in slices(values))


def _count(connection: Connection, table: Table, chosen: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.count()).select_from(table).where(chosen)).scalar_one())
