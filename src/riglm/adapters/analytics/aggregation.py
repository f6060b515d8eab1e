"""What follows from the records: co-occurrence, written where it changed, and the ends of sessions that have none."""

from typing import Final
from uuid import UUID

from sqlalchemy import Connection, delete, func, select, tuple_

from riglm.adapters.analytics import queries
from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.rows import DatabaseRow, insert_into
from riglm.adapters.analytics.storing import end_sessions
from riglm.adapters.analytics.tables import cooccurrence, exposure, invocation, session
from riglm.domain.cooccurrence import CooccurrenceCounter, ToolCooccurrence

_ROW_BATCH_SIZE: Final = 250  # in one transaction, for the end of which other writers wait

_Names = tuple[str, str]


def refresh_cooccurrences(database: Database, now: float, most_sessions: int) -> int:
    """Recompute co-occurrence, store what changed, and return the number of pairs."""
    counter = _counted(database, most_sessions)
    with database.reading() as connection:
        known = _known(connection, now)
    found = 0
    changed: list[DatabaseRow] = []
    for pair in counter.pairs(now):
        found += 1
        # One pair is written in any case: it records when this was done last.
        if known.pop((pair.tool_a, pair.tool_b), None) != (pair.count, pair.average_distance) or found == 1:
            changed.append(_pair_row(pair))
    changed.sort(key=lambda row: (row["tool_a"], row["tool_b"]))  # writers that lock in one order never lock each other
    for start in range(0, len(changed), _ROW_BATCH_SIZE):
        with database.writing() as connection:
            _put(connection, changed[start : start + _ROW_BATCH_SIZE])
    gone = sorted(known)
    for start in range(0, len(gone), _ROW_BATCH_SIZE):
        with database.writing() as connection:
            _remove(connection, gone[start : start + _ROW_BATCH_SIZE])
    return found


def end_idle_sessions(database: Database, before: float) -> int:
    """End every open session whose latest record is older than that time, at its latest record; return the number."""
    with database.reading() as connection:
        ends = list(_idle(connection, before).items())
    for start in range(0, len(ends), _ROW_BATCH_SIZE):
        with database.writing() as connection:
            end_sessions(connection, dict(ends[start : start + _ROW_BATCH_SIZE]))
    return len(ends)


def latest_refresh(connection: Connection) -> float:
    """When co-occurrence was computed last; 0 when it never was or there are no pairs."""
    return float(connection.execute(select(func.max(cooccurrence.c.last_updated))).scalar_one() or 0.0)


def _idle(connection: Connection, before: float) -> dict[UUID, float]:
    """Return the open sessions whose latest record is older than that time, and its time."""
    last_call = select(func.max(invocation.c.timestamp)).where(invocation.c.session_id == session.c.id)
    last_list = select(func.max(exposure.c.timestamp)).where(exposure.c.session_id == session.c.id)
    found = connection.execute(
        select(session.c.id, session.c.started_at, last_call.scalar_subquery(), last_list.scalar_subquery()).where(
            session.c.ended_at.is_(None), session.c.started_at < before
        )
    )
    latest = {id_: max(at for at in times if at is not None) for id_, *times in found}
    return {id_: at for id_, at in latest.items() if at < before}


def _counted(database: Database, most_sessions: int) -> CooccurrenceCounter:
    counter = CooccurrenceCounter()
    newest = select(session.c.id).order_by(session.c.id.desc())  # ids sort by the time at which sessions began
    with database.reading() as connection:
        last = connection.execute(newest.offset(most_sessions).limit(1)).scalar_one_or_none()
    while True:
        with database.reading() as connection:  # a new one for a few sessions: a long one would keep the WAL growing
            ids = queries.sessions_after(connection, last)
            if not ids:
                return counter
            last = ids[-1]
            for calls in queries.calls_of_sessions(connection, ids[0], last):
                counter.add_session(calls)


def _known(connection: Connection, now: float) -> dict[_Names, tuple[int, float] | None]:
    """Return what is stored of each pair; none if a clock that was ahead wrote it, so that it is written again."""
    columns = cooccurrence.c
    query = select(columns.tool_a, columns.tool_b, columns.count, columns.average_distance, columns.last_updated)
    return {
        (tool_a, tool_b): (count, distance) if at <= now else None
        for tool_a, tool_b, count, distance, at in connection.execute(query)
    }


def _put(connection: Connection, changed: list[DatabaseRow]) -> None:
    new = insert_into(connection, cooccurrence)
    taken = {name: new.excluded[name] for name in ("count", "average_distance", "last_updated")}
    connection.execute(new.on_conflict_do_update(index_elements=["tool_a", "tool_b"], set_=taken), changed)


def _remove(connection: Connection, gone: list[_Names]) -> None:
    chosen = tuple_(cooccurrence.c.tool_a, cooccurrence.c.tool_b).in_(gone)
    connection.execute(delete(cooccurrence).where(chosen))


def _pair_row(pair: ToolCooccurrence) -> DatabaseRow:
    return {
        "tool_a": pair.tool_a,
        "tool_b": pair.tool_b,
        "count": pair.count,
        "average_distance": pair.average_distance,
        "last_updated": pair.last_updated,
    }
