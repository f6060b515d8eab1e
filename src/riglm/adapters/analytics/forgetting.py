"""Removes all that is known of somebody.

Whoever is forgotten is noted first, and so is each of their sessions; the writer stores nothing of theirs from then on.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, exists, false, func, or_, select, update

from riglm.adapters.analytics.admission import note
from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.lookups import slices
from riglm.adapters.analytics.tables import (
    exposure,
    forgotten,
    invocation,
    learned_pair,
    lesson,
    override,
    session,
    warm_set,
)
from riglm.domain.forgetting import Forgotten, Whose
from riglm.domain.identifier import parsed_uuid
from riglm.domain.override import OverrideScope
from riglm.domain.retention import Removed

_SESSIONS_AT_ONCE: Final = 50


def known_of(connection: Connection, whom: Forgotten) -> Removed:
    """How many records there are of somebody, as far as they are counted by session or principal."""
    chosen = _sessions_of(whom)

    def of_sessions(table: Table) -> int:
        theirs = select(session.c.id).where(chosen)
        return _count(connection, table, table.c.session_id.in_(theirs))

    is_principal = whom.whose is Whose.PRINCIPAL
    return Removed(
        sessions=_count(connection, session, chosen),
        invocations=of_sessions(invocation),
        exposures=of_sessions(exposure),
        learned_pairs=_count(connection, learned_pair, _pairs_of(whom)) if is_principal else 0,
        overrides=_count(connection, override, _overrides_of(whom)),
        warm_sets=_count(connection, warm_set, warm_set.c.principal == whom.key) if is_principal else 0,
    )


def forget(database: Database, whom: Forgotten, at_once: int) -> Iterator[Removed]:
    """Note who is forgotten, then remove all that is known of them, in steps."""
    with database.writing() as connection:
        note(connection, [whom])
    yield Removed()
    yield from finish_forgetting(database, at_once)


def finish_forgetting(database: Database, at_once: int) -> Iterator[Removed]:
    """Remove what is left of all who were forgotten, in steps."""
    persons = _unfinished(database, Whose.CLIENT) + _unfinished(database, Whose.PRINCIPAL)
    if persons:
        _outlast_writers(database)
    for whom in persons:
        yield from _note_sessions(database, whom, at_once)
        with _overwriting(database) as connection:
            removed = _remove_what_is_personal(connection, whom)
            _done(connection, whom.whose, [whom.key])
        yield removed
    sessions = _unfinished(database, Whose.SESSION)
    if sessions:
        _outlast_writers(database)
    for start in range(0, len(sessions), _SESSIONS_AT_ONCE):
        yield from _remove_sessions(database, sessions[start : start + _SESSIONS_AT_ONCE], at_once)


def forgettings(connection: Connection, since: float) -> float:
    """A number that grows whenever somebody is forgotten after that time; 0 when nobody was."""
    query = select(func.sum(forgotten.c.at - since)).where(forgotten.c.at > since)
    return float(connection.execute(query).scalar_one() or 0.0)


def _sessions_of(whom: Forgotten) -> ColumnElement[bool]:
    if whom.whose is Whose.SESSION:
        return session.c.id == parsed_uuid(whom.key)
    if whom.whose is Whose.PRINCIPAL:
        mine: ColumnElement[bool] = session.c.principal == whom.key
    else:
        mine = or_(session.c.client_id == whom.key, session.c.client_name == whom.key)
    return and_(mine, session.c.started_at <= whom.at)


def _pairs_of(whom: Forgotten) -> ColumnElement[bool]:
    """The pairs in the scope of a principal. The empty scope may be everybody's: there it is the sessions that tell."""
    if not whom.key:
        return false()
    return and_(learned_pair.c.scope == whom.key, learned_pair.c.updated_at <= whom.at)


def _overrides_of(whom: Forgotten) -> ColumnElement[bool]:
    scope = OverrideScope.PRINCIPAL if whom.whose is Whose.PRINCIPAL else OverrideScope.SESSION
    return and_(override.c.scope == scope.value, override.c.key == whom.key)


def _outlast_writers(database: Database) -> None:
    """Wait for the end of all transactions that looked for notes before these were there.

    SQLite has one writer at a time. On PostgreSQL whoever read the table holds it against this lock until its end.
    """
    with database.writing() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"LOCK TABLE {forgotten.name} IN ACCESS EXCLUSIVE MODE")


def _unfinished(database: Database, whose: Whose) -> list[Forgotten]:
    query = select(forgotten.c.key, forgotten.c.at).where(
        forgotten.c.whose == whose.value, forgotten.c.is_done.is_(False)
    )
    with database.reading() as connection:
        return [Forgotten(whose=whose, key=key, at=at) for key, at in connection.execute(query)]


def _done(connection: Connection, whose: Whose, keys: Sequence[str]) -> None:
    chosen = and_(forgotten.c.whose == whose.value, forgotten.c.key.in_(keys))
    connection.execute(update(forgotten).where(chosen).values(is_done=True))


def _note_sessions(database: Database, whom: Forgotten, at_once: int) -> Iterator[Removed]:
    start = None
    while True:
        query = select(session.c.id).where(_sessions_of(whom)).order_by(session.c.id).limit(at_once)
        with database.reading() as connection:
            ids = connection.execute(query if start is None else query.where(session.c.id > start)).scalars().all()
        if not ids:
            return
        start = ids[-1]
        with database.writing() as connection:
            note(connection, [Forgotten(whose=Whose.SESSION, key=str(id_), at=whom.at) for id_ in ids])
        yield Removed()


def _remove_what_is_personal(connection: Connection, whom: Forgotten) -> Removed:
    """What is kept by principal and not by session; there is little of it."""
    if whom.whose is not Whose.PRINCIPAL:
        return Removed()
    return Removed(
        learned_pairs=connection.execute(delete(learned_pair).where(_pairs_of(whom))).rowcount,
        overrides=connection.execute(delete(override).where(_overrides_of(whom))).rowcount,
        warm_sets=connection.execute(delete(warm_set).where(warm_set.c.principal == whom.key)).rowcount,
    )


def _remove_sessions(database: Database, sessions: Sequence[Forgotten], at_once: int) -> Iterator[Removed]:
    keys = [each.key for each in sessions]
    ids = [id_ for id_ in map(parsed_uuid, keys) if id_ is not None]
    for count in _rows_of(database, invocation, ids, at_once):
        yield Removed(invocations=count)
    for count in _rows_of(database, exposure, ids, at_once):
        yield Removed(exposures=count)
    with _overwriting(database) as connection:
        pairs = _taught_by_no_other(connection, ids)
        removed = Removed(learned_pairs=_delete(connection, learned_pair, learned_pair.c.id, pairs))
        connection.execute(delete(lesson).where(or_(lesson.c.session_id.in_(ids), lesson.c.pair_id.in_(pairs))))
        made_for = and_(override.c.scope == OverrideScope.SESSION.value, override.c.key.in_(keys))
        removed += Removed(
            overrides=connection.execute(delete(override).where(made_for)).rowcount,
            sessions=_delete(connection, session, session.c.id, ids),
        )
        _done(connection, Whose.SESSION, keys)
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
    other = lesson.alias()
    by_another = exists().where(other.c.pair_id == lesson.c.pair_id, other.c.session_id.not_in(sessions))
    query = select(lesson.c.pair_id).where(lesson.c.session_id.in_(sessions), ~by_another).distinct()
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
