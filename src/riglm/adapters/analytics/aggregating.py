"""Co-occurrence computed from the invocations, and written where it changed."""

from typing import Final

from sqlalchemy import Connection, delete, func, select, tuple_

from riglm.adapters.analytics import queries
from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.lookups import insert_into
from riglm.adapters.analytics.rows import Row
from riglm.adapters.analytics.tables import cooccurrence
from riglm.domain.cooccurrence import CooccurrenceCounter, ToolCooccurrence

_PAIRS_AT_ONCE: Final = 250  # in one transaction, for the end of which other writers wait

_Names = tuple[str, str]


def refresh_cooccurrences(database: Database, now: float) -> int:
    """Compute co-occurrence anew, store what changed, and give the number of pairs."""
    counter = _counted(database)
    with database.reading() as connection:
        known = _known(connection)
    found = 0
    changed: list[Row] = []
    for pair in counter.pairs(now):
        found += 1
        # One pair is written in any case: it tells when this was done last.
        if known.pop((pair.tool_a, pair.tool_b), None) != (pair.count, pair.average_distance) or found == 1:
            changed.append(_pair_row(pair))
    changed.sort(key=lambda row: (row["tool_a"], row["tool_b"]))  # writers that lock in one order never lock each other
    for start in range(0, len(changed), _PAIRS_AT_ONCE):
        with database.writing() as connection:
            _put(connection, changed[start : start + _PAIRS_AT_ONCE])
    gone = sorted(known)
    for start in range(0, len(gone), _PAIRS_AT_ONCE):
        with database.writing() as connection:
            _remove(connection, gone[start : start + _PAIRS_AT_ONCE])
    return found


def latest_refresh(connection: Connection) -> float:
    """When co-occurrence was computed last; 0 when it never was or there are no pairs."""
    return float(connection.execute(select(func.max(cooccurrence.c.last_updated))).scalar_one() or 0.0)


def _counted(database: Database) -> CooccurrenceCounter:
    counter = CooccurrenceCounter()
    last = None
    while True:
        with database.reading() as connection:  # a new one for a few sessions: a long one would keep the WAL growing
            ids = queries.sessions_after(connection, last)
            if not ids:
                return counter
            last = ids[-1]
            for calls in queries.calls_of_sessions(connection, ids[0], last):
                counter.add_session(calls)


def _known(connection: Connection) -> dict[_Names, tuple[int, float]]:
    columns = cooccurrence.c
    query = select(columns.tool_a, columns.tool_b, columns.count, columns.average_distance)
    return {(tool_a, tool_b): (count, distance) for tool_a, tool_b, count, distance in connection.execute(query)}


def _put(connection: Connection, changed: list[Row]) -> None:
    new = insert_into(connection, cooccurrence)
    taken = {name: new.excluded[name] for name in ("count", "average_distance", "last_updated")}
    connection.execute(new.on_conflict_do_update(index_elements=["tool_a", "tool_b"], set_=taken), changed)


def _remove(connection: Connection, gone: list[_Names]) -> None:
    chosen = tuple_(cooccurrence.c.tool_a, cooccurrence.c.tool_b).in_(gone)
    connection.execute(delete(cooccurrence).where(chosen))


def _pair_row(pair: ToolCooccurrence) -> Row:
    return {
        "tool_a": pair.tool_a,
        "tool_b": pair.tool_b,
        "count": pair.count,
        "average_distance": pair.average_distance,
        "last_updated": pair.last_updated,
    }
