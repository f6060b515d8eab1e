"""Erases a client, a session or a principal.

The erased subject is noted first, and so is each of its sessions; from then on the writer stores nothing of them.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from riglm.adapters.analytics.database import SqlStore, reads
from riglm.adapters.analytics.rows import count, delete_rows, insert_into
from riglm.adapters.analytics.storing import forget_teacher, learned_only_from, note
from riglm.adapters.analytics.tables import (
    exposure,
    forgotten,
    invocation,
    learned_pair,
    override,
    session,
    teacher,
    token_usage,
    training_update,
    warm_set,
)
from riglm.domain.policy import OverrideScope
from riglm.domain.retention import ErasureRequest, ErasureScope, RemovedCounts
from riglm.domain.session import parsed_uuid
from riglm.ports.analytics import ROW_BATCH_SIZE

_SESSIONS_BATCH_SIZE: Final = 50
_HASH: Final = re.compile(r"[0-9a-f]{32}")


class SqlErasure(SqlStore):
    """Erasure of subjects in a SQL database; part of `SqlAnalytics`."""

    @reads
    def count_erasable(self, connection: sa.Connection, forgotten: ErasureRequest) -> RemovedCounts:
        """Return the number of records of a subject, for kinds that are stored by session or principal."""
        chosen = self._sessions_of(connection, forgotten)
        theirs = sa.select(session.c.id).where(chosen)
        return RemovedCounts(
            sessions=count(connection, session, chosen),
            invocations=count(connection, invocation, invocation.c.session_id.in_(theirs)),
            exposures=count(connection, exposure, exposure.c.session_id.in_(theirs)),
            learned_pairs=len(_pairs_of(connection, forgotten)),
            overrides=count(connection, override, _overrides_of(forgotten)),
            warm_sets=count(connection, warm_set, self._warm_sets_of(connection, forgotten)),
            token_usages=count(connection, token_usage, self._sessions_of(connection, forgotten, token_usage.c.client)),
        )

    def erase(self, forgotten: ErasureRequest, at_once: int = ROW_BATCH_SIZE) -> Iterator[RemovedCounts]:
        """Note who is forgotten, then remove all that is known of them, in steps."""
        with self._database.writing() as connection:
            note(connection, [forgotten])
        yield RemovedCounts()
        yield from self.finish_erasures(at_once)

    def finish_erasures(self, at_once: int = ROW_BATCH_SIZE) -> Iterator[RemovedCounts]:
        """Remove what is left of all who were forgotten, in steps."""
        self._hash_names()
        persons = self._unfinished(ErasureScope.CLIENT) + self._unfinished(ErasureScope.PRINCIPAL)
        if persons:
            self._outlast_writers()
        for whom in persons:
            yield from self._note_sessions(whom, at_once)
            with self._database.writing() as connection:
                _overwrite(connection)
                removed = self._remove_what_is_personal(connection, whom)
                _done(connection, whom.whose, [whom.key])
            yield removed
        sessions = self._unfinished(ErasureScope.SESSION)
        if sessions:
            self._outlast_writers()
        for start in range(0, len(sessions), _SESSIONS_BATCH_SIZE):
            yield from self._remove_sessions(sessions[start : start + _SESSIONS_BATCH_SIZE], at_once)

    @reads
    def list_erased_sessions(self, connection: sa.Connection, since: float = 0.0) -> Sequence[ErasureRequest]:
        return _noted(connection, ErasureScope.SESSION, forgotten.c.at >= since)

    @reads
    def count_erasures(self, connection: sa.Connection, since: float = 0.0) -> float:
        query = sa.select(sa.func.sum(forgotten.c.at - since)).where(forgotten.c.at > since)
        return float(connection.execute(query).scalar_one() or 0.0)

    def _sessions_of(
        self, connection: sa.Connection, whom: ErasureRequest, name: sa.Column[str] = session.c.client_name
    ) -> sa.ColumnElement[bool]:
        """Return the condition of sessions of a subject, in the table that has the column of their clients' names."""
        if whom.whose is ErasureScope.SESSION:
            return (session.c.id if name.table is session else token_usage.c.session_id) == parsed_uuid(whom.key)
        if whom.whose is ErasureScope.PRINCIPAL:
            mine: sa.ColumnElement[bool] = name.table.c.principal == whom.key
        else:
            mine = sa.or_(name.table.c.client_id == whom.key, self._is_named(connection, name, whom))
        return sa.and_(mine, name.table.c.started_at <= whom.at)

    def _warm_sets_of(self, connection: sa.Connection, whom: ErasureRequest) -> sa.ColumnElement[bool]:
        match whom.whose:
            case ErasureScope.PRINCIPAL:
                return warm_set.c.principal == whom.key
            case ErasureScope.CLIENT:
                return self._is_named(connection, warm_set.c.client, whom)
        return sa.false()

    def _is_named(
        self, connection: sa.Connection, column: sa.Column[str], whom: ErasureRequest
    ) -> sa.ColumnElement[bool]:
        known = connection.execute(sa.select(column).distinct()).scalars()
        return column.in_([name for name in known if whom.key == self._names(name)])

    def _outlast_writers(self) -> None:
        """Wait for the end of all transactions that looked for notes before these were there.

        SQLite has one writer at a time. On PostgreSQL a transaction that read the table holds it against this lock.
        """
        with self._database.writing() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"LOCK TABLE {forgotten.name} IN ACCESS EXCLUSIVE MODE")

    def _unfinished(self, whose: ErasureScope) -> list[ErasureRequest]:
        with self._database.reading() as connection:
            return _noted(connection, whose, forgotten.c.is_done.is_(False))

    def _hash_names(self) -> None:
        """Earlier riglms noted the names of clients as they are."""
        of_clients = forgotten.c.whose == ErasureScope.CLIENT.value
        with self._database.reading() as connection:
            found = connection.execute(sa.select(forgotten).where(of_clients)).mappings().all()
        plain = {row["key"]: self._names(row["key"]) for row in found if not _HASH.fullmatch(row["key"])}
        new = [{**row, "key": plain[row["key"]]} for row in found if plain.get(row["key"], row["key"]) != row["key"]]
        if new:
            with self._database.writing() as connection:
                _overwrite(connection)
                connection.execute(insert_into(connection, forgotten).on_conflict_do_nothing(), new)
                connection.execute(sa.delete(forgotten).where(of_clients, forgotten.c.key.in_(list(plain))))

    def _note_sessions(self, whom: ErasureRequest, at_once: int) -> Iterator[RemovedCounts]:
        with self._database.reading() as connection:
            theirs = self._sessions_of(connection, whom)
        query = sa.select(session.c.id).where(theirs).order_by(session.c.id).limit(at_once)
        ids: Sequence[UUID] = []
        while True:
            with self._database.reading() as connection:
                ids = connection.execute(query.where(session.c.id > ids[-1]) if ids else query).scalars().all()
            if not ids:
                return
            with self._database.writing() as connection:
                note(connection, [ErasureRequest(whose=ErasureScope.SESSION, key=str(id_), at=whom.at) for id_ in ids])
            yield RemovedCounts()

    def _remove_what_is_personal(self, connection: sa.Connection, whom: ErasureRequest) -> RemovedCounts:
        """What is kept by client or principal and not by session; there is little of it."""
        overrides = _overrides_of(whom) if whom.whose is ErasureScope.PRINCIPAL else sa.false()
        usages = self._sessions_of(connection, whom, token_usage.c.client)
        removed = RemovedCounts(
            learned_pairs=delete_rows(connection, learned_pair.c.id, list(_pairs_of(connection, whom))),
            warm_sets=connection.execute(sa.delete(warm_set).where(self._warm_sets_of(connection, whom))).rowcount,
            overrides=connection.execute(sa.delete(override).where(overrides)).rowcount,
            token_usages=connection.execute(sa.delete(token_usage).where(usages)).rowcount,
        )
        forget_teacher(connection, whom)
        return removed

    def _remove_sessions(self, sessions: Sequence[ErasureRequest], at_once: int) -> Iterator[RemovedCounts]:
        keys = [each.key for each in sessions]
        ids = [id_ for id_ in map(parsed_uuid, keys) if id_ is not None]
        for kind, table in (("invocations", invocation), ("exposures", exposure)):
            query = sa.select(table.c.id).where(table.c.session_id.in_(ids)).limit(at_once)
            for removed in self._remove_found(query, partial(_overwrite_rows, table.c.id)):
                yield RemovedCounts(**{kind: removed})
        made_for = sa.and_(override.c.scope == OverrideScope.SESSION.value, override.c.key.in_(keys))
        with self._database.writing() as connection:
            _overwrite(connection)
            pairs = _taught_by_no_other(connection, ids)
            learned_pairs = delete_rows(connection, learned_pair.c.id, pairs)
            lessons = sa.or_(training_update.c.session_id.in_(ids), training_update.c.pair_id.in_(pairs))
            connection.execute(sa.delete(training_update).where(lessons))
            counts = RemovedCounts(
                learned_pairs=learned_pairs,
                overrides=connection.execute(sa.delete(override).where(made_for)).rowcount,
                sessions=delete_rows(connection, session.c.id, ids),
                token_usages=delete_rows(connection, token_usage.c.session_id, ids),
            )
            _done(connection, ErasureScope.SESSION, keys)
        yield counts


def _overwrite(connection: sa.Connection) -> None:
    """Have SQLite fill with zeros what it removes, as it does not do by itself."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete=ON").close()


def _overwrite_rows(column: sa.Column[UUID], connection: sa.Connection, ids: Sequence[Any]) -> int:
    _overwrite(connection)
    return delete_rows(connection, column, ids)


def _noted(connection: sa.Connection, whose: ErasureScope, chosen: sa.ColumnElement[bool]) -> list[ErasureRequest]:
    query = sa.select(forgotten.c.key, forgotten.c.at).where(forgotten.c.whose == whose.value, chosen)
    return [ErasureRequest(whose=whose, key=key, at=at) for key, at in connection.execute(query)]


def _done(connection: sa.Connection, whose: ErasureScope, keys: Sequence[str]) -> None:
    chosen = sa.and_(forgotten.c.whose == whose.value, forgotten.c.key.in_(keys))
    connection.execute(sa.update(forgotten).where(chosen).values(is_done=True))


def _pairs_of(connection: sa.Connection, whom: ErasureRequest) -> set[UUID]:
    """The pairs in the scope of a principal, and those that only they taught in sessions that are purged.

    The empty scope is shared by all callers: there, the teacher decides.
    """
    pairs = set(learned_only_from(connection, whom))
    if whom.whose is ErasureScope.PRINCIPAL and whom.key:
        in_scope = sa.and_(learned_pair.c.scope == whom.key, learned_pair.c.updated_at <= whom.at)
        pairs.update(connection.execute(sa.select(learned_pair.c.id).where(in_scope)).scalars())
    return pairs


def _overrides_of(whom: ErasureRequest) -> sa.ColumnElement[bool]:
    scope = OverrideScope.PRINCIPAL if whom.whose is ErasureScope.PRINCIPAL else OverrideScope.SESSION
    return sa.and_(override.c.scope == scope.value, override.c.key == whom.key)


def _taught_by_no_other(connection: sa.Connection, sessions: Sequence[UUID]) -> Sequence[UUID]:
    columns, other = training_update.c, training_update.alias()
    by_another = sa.exists().where(other.c.pair_id == columns.pair_id, other.c.session_id.not_in(sessions))
    long_ago = sa.exists().where(teacher.c.pair_id == columns.pair_id)
    query = sa.select(columns.pair_id).where(columns.session_id.in_(sessions), ~by_another, ~long_ago).distinct()
    return connection.execute(query).scalars().all()
