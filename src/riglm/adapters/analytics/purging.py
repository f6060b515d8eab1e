"""Removes what is too old, in steps that no writer has to wait for long."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Table, and_, delete, exists, func, select

from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.lists import remove_lists, unused_lists
from riglm.adapters.analytics.lookups import sessions_there
from riglm.adapters.analytics.tables import (
    exposure,
    forgotten,
    invocation,
    learned_pair,
    lesson,
    override,
    session,
    teacher,
    warm_set,
)
from riglm.adapters.analytics.teachers import keep_teachers
from riglm.domain.identifier import parsed_uuid
from riglm.domain.override import OverrideScope
from riglm.domain.retention import DAY_SECONDS, Expiry, Removed
from riglm.domain.warm_set import KEPT_SECONDS

FORGOTTEN_SECONDS: Final = 366 * DAY_SECONDS
"""How long it is remembered who was forgotten: longer than any spool waits to be replayed."""

_JOURNAL_PAGES: Final = 400
"""Pages at which SQLite's journal is written back: less than the 1000 at which any other writer does it."""

_LESSONS: Final = (lesson, teacher)
"""Who taught a learned pair."""

_is_empty: Final = and_(
    ~exists().where(invocation.c.session_id == session.c.id), ~exists().where(exposure.c.session_id == session.c.id)
)


def expired(connection: Connection, expiry: Expiry) -> Removed:
    """Return the number of records that are too old; a session counts as if its records were already deleted."""

    def count(table: Table, chosen: ColumnElement[bool] | None) -> int:
        if chosen is None:
            return 0
        return int(connection.execute(select(func.count()).select_from(table).where(chosen)).scalar_one())

    def older(time: Column[float], before: float | None) -> ColumnElement[bool] | None:
        return None if before is None else time < before

    ended = None if expiry.sessions is None else _ended(expiry.sessions)
    if ended is not None:
        ended = and_(ended, *_nothing_kept(expiry))
    return Removed(
        sessions=count(session, ended),
        invocations=count(invocation, older(invocation.c.timestamp, expiry.invocations)),
        exposures=count(exposure, older(exposure.c.timestamp, expiry.exposures)),
        learned_pairs=count(learned_pair, older(learned_pair.c.updated_at, expiry.learned_pairs)),
        overrides=count(override, override.c.expires_at <= expiry.now),
        warm_sets=count(warm_set, warm_set.c.created_at < expiry.now - KEPT_SECONDS),
    )


def purge(database: Database, expiry: Expiry, at_once: int, names: Callable[[str], str]) -> Iterator[Removed]:
    """Remove what is too old, in steps. What refers to other records goes before them.

    Who taught a learned pair stays known when the session goes: `names` gives the keyed hash of a client's name.
    """

    def keep_who_taught(connection: Connection, sessions: Sequence[Any]) -> None:
        keep_teachers(connection, sessions, names)

    if expiry.invocations is not None:
        for count in _aged(database, invocation, invocation.c.timestamp, expiry.invocations, at_once):
            yield Removed(invocations=count)
    if expiry.exposures is not None:
        for count in _aged(database, exposure, exposure.c.timestamp, expiry.exposures, at_once):
            yield Removed(exposures=count)
    if expiry.sessions is not None:
        chosen = and_(_ended(expiry.sessions), _is_empty)
        for count in _aged(database, session, session.c.started_at, expiry.sessions, at_once, chosen, keep_who_taught):
            yield Removed(sessions=count)
    if expiry.learned_pairs is not None:
        time = learned_pair.c.updated_at
        for count in _aged(database, learned_pair, time, expiry.learned_pairs, at_once, first=_forget_lessons):
            yield Removed(learned_pairs=count)
    yield _small_things(database, expiry)
    yield from _orphaned_lessons(database, at_once)
    if expiry.lists is not None:
        yield from _lists(database, expiry.lists, at_once)


def _ended(before: float) -> ColumnElement[bool]:
    return and_(session.c.started_at < before, session.c.ended_at < before)


def _nothing_kept(expiry: Expiry) -> Iterator[ColumnElement[bool]]:
    """Of a session: nothing that happened in it is young enough to be kept."""
    for table, before in ((invocation, expiry.invocations), (exposure, expiry.exposures)):
        kept = exists().where(table.c.session_id == session.c.id)
        yield ~(kept if before is None else kept.where(table.c.timestamp >= before))


def _aged(
    database: Database,
    table: Table,
    time: Column[float],
    before: float,
    at_once: int,
    chosen: ColumnElement[bool] | None = None,
    first: Callable[[Connection, Sequence[Any]], object] | None = None,
) -> Iterator[int]:
    """Remove the rows that are older, oldest first; `chosen` narrows them.

    `first` is done before that in the same transaction. They are looked for before the transaction, and from where the
    last step ended: the index still holds what was removed, and to walk past it takes longer each time.
    """
    start = None
    while True:
        older = time < before if start is None else and_(time < before, time >= start)
        query = select(table.c.id, time).where(older if chosen is None else and_(older, chosen))
        with database.reading() as connection:
            found = connection.execute(query.order_by(time).limit(at_once)).all()
        if not found:
            return
        ids = [row[0] for row in found]
        start = found[-1][1]
        with database.writing() as connection:
            _write_back_early(connection)
            if first is not None:
                first(connection, ids)
            count = connection.execute(delete(table).where(table.c.id.in_(ids))).rowcount
        yield count
        if len(found) < at_once:
            return


def _write_back_early(connection: Connection) -> None:
    """Let SQLite's journal be written back by this connection, and not by a writer that has records waiting."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA wal_autocheckpoint={_JOURNAL_PAGES}").close()


def _forget_lessons(connection: Connection, pairs: Sequence[Any]) -> None:
    for table in _LESSONS:
        connection.execute(delete(table).where(table.c.pair_id.in_(pairs)))


def _small_things(database: Database, expiry: Expiry) -> Removed:
    """What there is little of goes in one step."""
    gone = override.c.expires_at <= expiry.now
    with database.writing() as connection:
        removed = Removed(
            overrides=connection.execute(delete(override).where(gone)).rowcount + _of_no_session(connection, expiry),
            warm_sets=connection.execute(
                delete(warm_set).where(warm_set.c.created_at < expiry.now - KEPT_SECONDS)
            ).rowcount,
        )
        long_ago = forgotten.c.at < expiry.now - FORGOTTEN_SECONDS
        connection.execute(delete(forgotten).where(and_(forgotten.c.is_done, long_ago)))
    return removed


def _of_no_session(connection: Connection, expiry: Expiry) -> int:
    """Remove overrides for sessions that are too old to be there and are not; their number."""
    if expiry.sessions is None:
        return 0
    of_sessions = and_(override.c.scope == OverrideScope.SESSION.value, override.c.created_at < expiry.sessions)
    keys = connection.execute(select(override.c.key).where(of_sessions)).scalars().all()
    there = {str(id_) for id_ in sessions_there(connection, filter(None, map(parsed_uuid, keys)))}
    gone = [key for key in keys if key not in there]
    return connection.execute(delete(override).where(and_(of_sessions, override.c.key.in_(gone)))).rowcount


def _orphaned_lessons(database: Database, at_once: int) -> Iterator[Removed]:
    """Delete the lessons of deleted pairs: pairs are deleted in many ways, and none of them has to look here."""
    for table in _LESSONS:
        gone = ~exists().where(learned_pair.c.id == table.c.pair_id)
        query = select(table.c.pair_id).where(gone).distinct().limit(at_once)
        while True:
            with database.reading() as connection:
                pairs = connection.execute(query).scalars().all()
            if not pairs:
                break
            with database.writing() as connection:
                connection.execute(delete(table).where(and_(table.c.pair_id.in_(pairs), gone)))
            yield Removed()


def _lists(database: Database, before: float, at_once: int) -> Iterator[Removed]:
    while True:
        with database.reading() as connection:
            ids = unused_lists(connection, before, at_once)
        if not ids:
            return
        with database.writing() as connection:
            removed = remove_lists(connection, ids, before)
        yield Removed(lists=removed)
