"""Maintenance of a SQL store: removes old records and returns free space."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Table, and_, delete, exists, func, select, text

from riglm.adapters.analytics import exporting, forgetting
from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.rows import remove_lists, sessions_there, unused_lists
from riglm.adapters.analytics.storing import keep_teachers
from riglm.adapters.analytics.tables import (
    exposure,
    forgotten,
    invocation,
    learned_pair,
    metadata,
    override,
    session,
    teacher,
    training_update,
    warm_set,
)
from riglm.domain.policy import OverrideScope
from riglm.domain.retention import DAY_SECONDS, ErasureRequest, Expiry, RemovedCounts
from riglm.domain.session import parsed_uuid
from riglm.domain.usage import TTL_SECONDS
from riglm.ports.maintenance import ROW_BATCH_SIZE, ExportRow, MaintenancePort, RecordKind

FORGOTTEN_SECONDS: Final = 366 * DAY_SECONDS
"""How long it is remembered who was forgotten: longer than any spool waits to be replayed."""

_JOURNAL_PAGES: Final = 400
"""Pages at which SQLite's journal is written back: less than the 1000 at which any other writer does it."""

_LESSONS: Final = (training_update, teacher)
"""Who taught a learned pair."""

_is_empty: Final = and_(
    ~exists().where(invocation.c.session_id == session.c.id), ~exists().where(exposure.c.session_id == session.c.id)
)


def expired(connection: Connection, expiry: Expiry) -> RemovedCounts:
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
    return RemovedCounts(
        sessions=count(session, ended),
        invocations=count(invocation, older(invocation.c.timestamp, expiry.invocations)),
        exposures=count(exposure, older(exposure.c.timestamp, expiry.exposures)),
        learned_pairs=count(learned_pair, older(learned_pair.c.updated_at, expiry.learned_pairs)),
        overrides=count(override, override.c.expires_at <= expiry.now),
        warm_sets=count(warm_set, warm_set.c.created_at < expiry.now - TTL_SECONDS),
    )


def purge(database: Database, expiry: Expiry, at_once: int, names: Callable[[str], str]) -> Iterator[RemovedCounts]:
    """Remove what is too old, in steps. What refers to other records goes before them.

    Who taught a learned pair stays known when the session goes: `names` gives the keyed hash of a client's name.
    """

    def keep_who_taught(connection: Connection, sessions: Sequence[Any]) -> None:
        keep_teachers(connection, sessions, names)

    if expiry.invocations is not None:
        for count in _aged(database, invocation, invocation.c.timestamp, expiry.invocations, at_once):
            yield RemovedCounts(invocations=count)
    if expiry.exposures is not None:
        for count in _aged(database, exposure, exposure.c.timestamp, expiry.exposures, at_once):
            yield RemovedCounts(exposures=count)
    if expiry.sessions is not None:
        chosen = and_(_ended(expiry.sessions), _is_empty)
        for count in _aged(database, session, session.c.started_at, expiry.sessions, at_once, chosen, keep_who_taught):
            yield RemovedCounts(sessions=count)
    if expiry.learned_pairs is not None:
        time = learned_pair.c.updated_at
        for count in _aged(database, learned_pair, time, expiry.learned_pairs, at_once, first=_forget_lessons):
            yield RemovedCounts(learned_pairs=count)
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


def _small_things(database: Database, expiry: Expiry) -> RemovedCounts:
    """What there is little of goes in one step."""
    gone = override.c.expires_at <= expiry.now
    with database.writing() as connection:
        removed = RemovedCounts(
            overrides=connection.execute(delete(override).where(gone)).rowcount + _of_no_session(connection, expiry),
            warm_sets=connection.execute(
                delete(warm_set).where(warm_set.c.created_at < expiry.now - TTL_SECONDS)
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


def _orphaned_lessons(database: Database, at_once: int) -> Iterator[RemovedCounts]:
    """Delete the training records of deleted pairs; pairs are deleted in many places, and none of them does this."""
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
            yield RemovedCounts()


def _lists(database: Database, before: float, at_once: int) -> Iterator[RemovedCounts]:
    while True:
        with database.reading() as connection:
            ids = unused_lists(connection, before, at_once)
        if not ids:
            return
        with database.writing() as connection:
            removed = remove_lists(connection, ids, before)
        yield RemovedCounts(lists=removed)


_PAGES_BATCH_SIZE: Final = 50
_INCREMENTAL: Final = 2


def size_bytes(connection: Connection) -> int:
    """How much space the database takes, without its journal."""
    if connection.dialect.name == "sqlite":
        return _pragma(connection, "page_count") * _pragma(connection, "page_size")
    return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())


def compact(database: Database, *, whole: bool, reserve: float) -> Iterator[str]:
    """Give space back, in steps, each with what was done."""
    with database.apart() as connection:
        if connection.dialect.name == "sqlite":
            yield from _compact_file(connection, whole, reserve)
        else:
            yield from _vacuum_tables(connection, whole)


def _compact_file(connection: Connection, whole: bool, reserve: float) -> Iterator[str]:
    if whole:
        connection.exec_driver_sql(f"PRAGMA auto_vacuum={_INCREMENTAL}")
        connection.exec_driver_sql("VACUUM")
        yield "the file was rewritten"
    elif _pragma(connection, "auto_vacuum") == _INCREMENTAL:
        yield from _give_pages_back(connection, reserve)
    connection.exec_driver_sql("PRAGMA optimize").close()
    # Who wants all of it back wants nothing to stay in the journal either; else no writer is to wait for its end.
    how = "PASSIVE" if reserve else "TRUNCATE"
    connection.exec_driver_sql(f"PRAGMA wal_checkpoint({how})").close()
    yield "the journal was written back"


def _give_pages_back(connection: Connection, reserve: float) -> Iterator[str]:
    """Each step is a separate transaction, so that other processes write in between."""
    while True:
        free = _pragma(connection, "freelist_count")
        excess = free - int(_pragma(connection, "page_count") * reserve)
        if excess <= 0:
            return
        raw: Any = connection.connection.driver_connection
        # As a script, which is run to its end: other statements stop after the first page, having no row to show.
        raw.executescript(f"PRAGMA incremental_vacuum({min(excess, _PAGES_BATCH_SIZE)})").close()
        given = free - _pragma(connection, "freelist_count")
        if given <= 0:
            return
        yield f"{given} pages were given back"


def _vacuum_tables(connection: Connection, whole: bool) -> Iterator[str]:
    how = "FULL, ANALYZE" if whole else "ANALYZE"
    for table in metadata.sorted_tables:
        connection.exec_driver_sql(f'VACUUM ({how}) "{table.name}"')
        yield f"the table {table.name} was vacuumed"


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())


class SqlMaintenance(MaintenancePort):
    """What is done to a SQL database from time to time; part of `SqlAnalytics`."""

    _database: Database
    _names: forgetting.NameHasher

    def expired(self, expiry: Expiry) -> RemovedCounts:
        with self._database.reading() as connection:
            return expired(connection, expiry)

    def purge(self, expiry: Expiry, at_once: int = ROW_BATCH_SIZE) -> Iterator[RemovedCounts]:
        return purge(self._database, expiry, at_once, self._names)

    def known_of(self, forgotten: ErasureRequest) -> RemovedCounts:
        with self._database.reading() as connection:
            return forgetting.known_of(connection, forgotten, self._names)

    def forget(self, forgotten: ErasureRequest, at_once: int = ROW_BATCH_SIZE) -> Iterator[RemovedCounts]:
        return forgetting.forget(self._database, forgotten, at_once, self._names)

    def finish_forgetting(self, at_once: int = ROW_BATCH_SIZE) -> Iterator[RemovedCounts]:
        return forgetting.finish_forgetting(self._database, at_once, self._names)

    def forgotten_sessions(self, since: float = 0.0) -> Sequence[ErasureRequest]:
        with self._database.reading() as connection:
            return forgetting.forgotten_sessions(connection, since)

    def forgettings(self, since: float = 0.0) -> float:
        with self._database.reading() as connection:
            return forgetting.forgettings(connection, since)

    def count_rows(self, kind: RecordKind, since: float = 0.0) -> int:
        with self._database.reading() as connection:
            return exporting.count_rows(connection, kind, since)

    def export(self, kind: RecordKind, since: float = 0.0, at_once: int = 1000) -> Iterator[Sequence[ExportRow]]:
        return exporting.export(self._database, kind, since, at_once)

    def size_bytes(self) -> int:
        with self._database.reading() as connection:
            return size_bytes(connection)

    def compact(self, *, whole: bool = False, reserve: float = 0.0) -> Iterator[str]:
        return compact(self._database, whole=whole, reserve=reserve)
