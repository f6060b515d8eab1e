"""Maintenance of a SQL store: removes old records, returns free space, and derives what follows from the records."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from riglm.adapters.analytics import rows, storing
from riglm.adapters.analytics.database import SqlStore, reads
from riglm.adapters.analytics.queries import of_servers
from riglm.adapters.analytics.rows import DatabaseRow, count, delete_rows, upsert
from riglm.adapters.analytics.tables import (
    cooccurrence,
    exposure,
    forgotten,
    invocation,
    knowledge_clock,
    learned_pair,
    metadata,
    override,
    session,
    teacher,
    token_usage,
    training_update,
    warm_set,
)
from riglm.domain.cooccurrence import MAX_COOCCURRENCE_SESSIONS, Cooccurrence, CooccurrenceCounter
from riglm.domain.learning import WARM_SET_TTL_SECONDS
from riglm.domain.policy import OverrideScope
from riglm.domain.retention import DAY_SECONDS, Expiry, RemovedCounts
from riglm.domain.session import parsed_uuid
from riglm.ports.analytics import ROW_BATCH_SIZE

FORGOTTEN_SECONDS: Final = 366 * DAY_SECONDS
"""How long it is remembered who was forgotten: longer than any spool waits to be replayed."""

_JOURNAL_PAGES: Final = 400  # at which SQLite's journal is written back; any other writer does it at 1000

_WRITE_BATCH_SIZE: Final = 250  # in one transaction, for the end of which other writers wait
_SESSIONS_BATCH_SIZE: Final = 500
_PAGES_BATCH_SIZE: Final = 50
_INCREMENTAL: Final = 2
_CLOCK: Final = "maintenance"  # its row in `knowledge_clock`
_MAX_PAUSE_SECONDS: Final = 2 * DAY_SECONDS  # by which a reliable clock is ahead of the known time
_LESSONS: Final = (training_update, teacher)  # who taught a learned pair

_is_empty: Final = sa.and_(
    ~sa.exists().where(invocation.c.session_id == session.c.id),
    ~sa.exists().where(exposure.c.session_id == session.c.id),
)


class SqlMaintenance(SqlStore):
    """What is done to a SQL database from time to time; part of `SqlAnalytics`."""

    @reads
    def get_reliable_time(self, connection: sa.Connection, now: float, since: float) -> float:
        return get_reliable_time(connection, now, since)

    def note_time(self, at: float, now: float) -> None:
        with self._database.writing() as connection:
            noted = _noted_time(connection)
            if (noted is None or at < noted) and (_newest_record(connection, math.inf) or 0.0) > now + DAY_SECONDS:
                return
            upsert(connection, knowledge_clock, [{"piece": _CLOCK, "changed": int(at * 1e6), "removed": 0}])

    @reads
    def count_expired(self, connection: sa.Connection, expiry: Expiry) -> RemovedCounts:
        """Return the number of records that are too old; a session counts as if its records were already deleted."""

        def older(time: sa.Column[float], before: float | None) -> int:
            return 0 if before is None else count(connection, time.table, time < before)

        sessions = sa.false() if expiry.sessions is None else sa.and_(_ended(expiry.sessions), *_nothing_kept(expiry))
        return RemovedCounts(
            sessions=count(connection, session, sessions),
            invocations=older(invocation.c.timestamp, expiry.invocations),
            exposures=older(exposure.c.timestamp, expiry.exposures),
            learned_pairs=older(learned_pair.c.updated_at, expiry.learned_pairs),
            overrides=count(connection, override, override.c.expires_at <= expiry.now),
            warm_sets=older(warm_set.c.created_at, expiry.now - WARM_SET_TTL_SECONDS),
            token_usages=older(token_usage.c.started_at, expiry.sessions),
        )

    def purge(self, expiry: Expiry, at_once: int = ROW_BATCH_SIZE) -> Iterator[RemovedCounts]:
        """Remove what is too old, in steps. What refers to other records goes before them.

        Who taught a learned pair stays known when the session goes.
        """
        keep_who_taught = partial(storing.keep_teachers, names=self._names)
        ended = sa.false() if expiry.sessions is None else sa.and_(_ended(expiry.sessions), _is_empty)
        remove = partial(self._remove_aged, at_once=at_once)
        yield from remove("invocations", invocation.c.timestamp, expiry.invocations)
        yield from remove("exposures", exposure.c.timestamp, expiry.exposures)
        yield from remove("sessions", session.c.started_at, expiry.sessions, ended, before=keep_who_taught)
        yield from remove("learned_pairs", learned_pair.c.updated_at, expiry.learned_pairs, before=_forget_lessons)
        yield self._remove_small_things(expiry)
        for table in _LESSONS:  # the many places that delete pairs leave the records of their training
            is_orphaned = ~sa.exists().where(learned_pair.c.id == table.c.pair_id)
            query = sa.select(table.c.pair_id).where(is_orphaned).distinct().limit(at_once)
            for _ in self._remove_found(query, partial(_remove_lessons, table.c.pair_id, is_orphaned)):
                yield RemovedCounts()
        if (unused_since := expiry.lists) is not None:
            remove_lists = partial(rows.remove_lists, before=unused_since)
            for removed in self._remove_found(rows.unused_lists(unused_since, at_once), remove_lists):
                yield RemovedCounts(lists=removed)

    def _remove_aged(
        self,
        kind: str,
        time: sa.Column[float],
        limit: float | None,
        *chosen: sa.ColumnElement[bool],
        at_once: int,
        before: Callable[[sa.Connection, Sequence[Any]], None] | None = None,
    ) -> Iterator[RemovedCounts]:
        """Remove the rows that are older than `limit`, oldest first; `chosen` narrows them.

        `before` is called before that in the same transaction. They are looked for before the transaction, and from
        where the last step ended: the index still holds what was removed, and to walk past it takes longer each time.
        """
        found: Sequence[Any] = []
        table = time.table
        while limit is not None:
            query = sa.select(table.c.id, time).where(time < limit, *chosen).order_by(time).limit(at_once)
            with self._database.reading() as connection:
                found = connection.execute(query.where(time >= found[-1][1]) if found else query).all()
            if not found:
                return
            ids = [row[0] for row in found]
            with self._database.writing() as connection:
                if connection.dialect.name == "sqlite":
                    # The journal is written back by this connection, and not by a writer that has records waiting.
                    connection.exec_driver_sql(f"PRAGMA wal_autocheckpoint={_JOURNAL_PAGES}").close()
                if before is not None:
                    before(connection, ids)
                removed = delete_rows(connection, table.c.id, ids)
            yield RemovedCounts(**{kind: removed})
            if len(found) < at_once:
                return

    def _remove_small_things(self, expiry: Expiry) -> RemovedCounts:
        """What there is little of goes in one step."""
        old_sets = warm_set.c.created_at < expiry.now - WARM_SET_TTL_SECONDS
        old_usages = sa.false() if expiry.sessions is None else token_usage.c.started_at < expiry.sessions
        long_ago = forgotten.c.at < expiry.now - FORGOTTEN_SECONDS
        with self._database.writing() as connection:
            expired = connection.execute(sa.delete(override).where(override.c.expires_at <= expiry.now)).rowcount
            removed = RemovedCounts(
                overrides=expired + _remove_overrides_of_no_session(connection, expiry),
                warm_sets=connection.execute(sa.delete(warm_set).where(old_sets)).rowcount,
                token_usages=connection.execute(sa.delete(token_usage).where(old_usages)).rowcount,
            )
            connection.execute(sa.delete(forgotten).where(forgotten.c.is_done, long_ago))
        return removed

    def prune_learned_pairs(self, most: int, at_once: int = ROW_BATCH_SIZE) -> Iterator[int]:
        oldest = sa.select(learned_pair.c.id).order_by(learned_pair.c.updated_at, learned_pair.c.id)
        while True:
            with self._database.reading() as connection:
                excess = count(connection, learned_pair) - most
            if excess <= 0:
                return
            with self._database.writing() as connection:
                chosen = learned_pair.c.id.in_(oldest.limit(min(excess, at_once)))
                removed = connection.execute(sa.delete(learned_pair).where(chosen)).rowcount
            yield removed

    @reads
    def size_bytes(self, connection: sa.Connection) -> int:
        """How much space the database takes, without its journal."""
        if connection.dialect.name == "sqlite":
            return _pragma(connection, "page_count") * _pragma(connection, "page_size")
        return int(connection.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one())

    def compact(self, *, whole: bool = False, reserve: float = 0.0) -> Iterator[str]:
        with self._database.apart() as connection:
            if connection.dialect.name == "sqlite":
                yield from _compact_file(connection, whole, reserve)
                return
            for table in metadata.sorted_tables:
                connection.exec_driver_sql(f'VACUUM ({"FULL, " if whole else ""}ANALYZE) "{table.name}"')
                yield f"the table {table.name} was vacuumed"

    def refresh_cooccurrences(self, now: float, most_sessions: int = MAX_COOCCURRENCE_SESSIONS) -> int:
        counter = self._count_cooccurrences(most_sessions)
        columns = cooccurrence.c
        query = sa.select(columns.tool_a, columns.tool_b, columns.count, columns.average_distance, columns.last_updated)
        with self._database.reading() as connection:
            # A pair that a clock ahead wrote differs from any, so that it is written again.
            known = {
                (tool_a, tool_b): (number, distance) if at <= now else None
                for tool_a, tool_b, number, distance, at in connection.execute(query)
            }
        found = 0
        changed: list[DatabaseRow] = []
        for pair in counter.pairs(now):
            found += 1
            # One pair is written in any case: it records when this was done last.
            if known.pop((pair.tool_a, pair.tool_b), None) != (pair.count, pair.average_distance) or found == 1:
                changed.append({name: getattr(pair, name) for name in Cooccurrence.__dataclass_fields__})
        changed.sort(key=itemgetter("tool_a", "tool_b"))  # writers that lock in one order never lock each other
        for some in rows.slices(changed, _WRITE_BATCH_SIZE):
            with self._database.writing() as connection:
                upsert(connection, cooccurrence, some)
        for gone in rows.slices(sorted(known), _WRITE_BATCH_SIZE):
            with self._database.writing() as connection:
                connection.execute(sa.delete(cooccurrence).where(sa.tuple_(columns.tool_a, columns.tool_b).in_(gone)))
        return found

    def _count_cooccurrences(self, most_sessions: int) -> CooccurrenceCounter:
        counter = CooccurrenceCounter()
        newest = sa.select(session.c.id).order_by(session.c.id.desc())  # ids sort by the time at which sessions began
        with self._database.reading() as connection:
            last = connection.execute(newest.offset(most_sessions).limit(1)).scalar_one_or_none()
        columns = invocation.c
        some = sa.select(columns.session_id).distinct().order_by(columns.session_id).limit(_SESSIONS_BATCH_SIZE)
        while True:
            with self._database.reading() as connection:  # a new one each time: a long one keeps the WAL growing
                query = some if last is None else some.where(columns.session_id > last)
                ids = connection.execute(query).scalars().all()
                if not ids:
                    return counter
                last = ids[-1]
                calls = (
                    sa.select(columns.session_id, columns.tool, columns.sequence_number)
                    .where(columns.session_id.between(ids[0], last), columns.success, of_servers)
                    .order_by(columns.session_id, columns.sequence_number, columns.id)
                )
                for _, made in groupby(connection.execute(calls), key=itemgetter(0)):
                    counter.add_session((tool, number) for _, tool, number in made)

    @reads
    def get_refresh_time(self, connection: sa.Connection) -> float:
        return float(connection.execute(sa.select(sa.func.max(cooccurrence.c.last_updated))).scalar_one() or 0.0)

    def end_idle_sessions(self, before: float) -> int:
        """End every open session whose latest record is older than that time, at its latest record."""
        last_call = sa.select(sa.func.max(invocation.c.timestamp)).where(invocation.c.session_id == session.c.id)
        last_list = sa.select(sa.func.max(exposure.c.timestamp)).where(exposure.c.session_id == session.c.id)
        query = sa.select(session.c.id, session.c.started_at, last_call.scalar_subquery(), last_list.scalar_subquery())
        is_open = sa.and_(session.c.ended_at.is_(None), session.c.started_at < before)
        with self._database.reading() as connection:
            found = connection.execute(query.where(is_open)).all()
        latest: list[tuple[UUID, float]] = [(id_, max(at for at in times if at is not None)) for id_, *times in found]
        ends = [(id_, at) for id_, at in latest if at < before]
        for some in rows.slices(ends, _WRITE_BATCH_SIZE):
            with self._database.writing() as connection:
                storing.end_sessions(connection, dict(some))
        return len(ends)


def get_reliable_time(connection: sa.Connection, now: float, since: float) -> float:
    """Return the result of `MaintenancePort.get_reliable_time`."""
    noted = _noted_time(connection)
    recorded = _newest_record(connection, since if noted is None else now - DAY_SECONDS)
    known = max((at for at in (noted, recorded) if at is not None and at <= now), default=now)
    return now if now - known <= _MAX_PAUSE_SECONDS else known


def _noted_time(connection: sa.Connection) -> float | None:
    noted = connection.execute(sa.select(knowledge_clock.c.changed).where(knowledge_clock.c.piece == _CLOCK)).scalar()
    return None if noted is None else noted / 1e6


def _newest_record(connection: sa.Connection, before: float) -> float | None:
    """Return the time of the newest record before a time, None if there is none."""
    columns = (invocation.c.timestamp, exposure.c.timestamp, session.c.started_at)
    newest = (connection.execute(sa.select(sa.func.max(at)).where(at < before)).scalar() for at in columns)
    return max((at for at in newest if at is not None), default=None)


def _ended(before: float) -> sa.ColumnElement[bool]:
    return sa.and_(session.c.started_at < before, session.c.ended_at < before)


def _nothing_kept(expiry: Expiry) -> Iterator[sa.ColumnElement[bool]]:
    """Of a session: nothing that happened in it is young enough to be kept."""
    for table, before in ((invocation, expiry.invocations), (exposure, expiry.exposures)):
        kept = sa.exists().where(table.c.session_id == session.c.id)
        yield ~(kept if before is None else kept.where(table.c.timestamp >= before))


def _forget_lessons(connection: sa.Connection, pairs: Sequence[Any]) -> None:
    for table in _LESSONS:
        delete_rows(connection, table.c.pair_id, pairs)


def _remove_lessons(
    column: sa.Column[UUID], is_orphaned: sa.ColumnElement[bool], connection: sa.Connection, pairs: Sequence[Any]
) -> None:
    connection.execute(sa.delete(column.table).where(column.in_(pairs), is_orphaned))


def _remove_overrides_of_no_session(connection: sa.Connection, expiry: Expiry) -> int:
    """Remove overrides for sessions that are too old to be there and are not; their number."""
    if expiry.sessions is None:
        return 0
    of_sessions = sa.and_(override.c.scope == OverrideScope.SESSION.value, override.c.created_at < expiry.sessions)
    keys = connection.execute(sa.select(override.c.key).where(of_sessions)).scalars().all()
    there = {str(id_) for id_ in rows.sessions_there(connection, filter(None, map(parsed_uuid, keys)))}
    gone = [key for key in keys if key not in there]
    return connection.execute(sa.delete(override).where(of_sessions, override.c.key.in_(gone))).rowcount


def _compact_file(connection: sa.Connection, whole: bool, reserve: float) -> Iterator[str]:
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


def _give_pages_back(connection: sa.Connection, reserve: float) -> Iterator[str]:
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


def _pragma(connection: sa.Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
