"""Lists of tools, which sessions and exposures refer to: stored once, removed when nothing refers to them any more."""

import time
from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection, delete, exists, or_, select

from riglm.adapters.analytics import rows
from riglm.adapters.analytics.lookups import insert_into, slices
from riglm.adapters.analytics.rows import Names
from riglm.adapters.analytics.tables import exposure, session, toolset
from riglm.domain.retention import DAY_SECONDS

UNUSED_SECONDS: Final = 2 * DAY_SECONDS
"""Seconds that a list is kept longer than anything that refers to it: its use is noted once a day, by any clock."""


def keep_lists(connection: Connection, lists: Iterable[Names]) -> None:
    """Store the lists that are not stored, and note the use of those that were not used today.

    A list that was used today is safe from removal, so that its row need not be locked, which every writer uses.
    """
    wanted = {row["id"]: row for row in rows.toolset_rows(lists)}
    now = time.time()
    for some in slices(list(wanted)):
        fresh = select(toolset.c.id).where(toolset.c.id.in_(some), toolset.c.used_at > now - DAY_SECONDS)
        for id_ in connection.execute(fresh).scalars():
            del wanted[id_]
    if wanted:
        new = insert_into(connection, toolset)
        upsert = new.on_conflict_do_update(index_elements=["id"], set_={"used_at": new.excluded.used_at})
        # In one order for all: two writers that lock the same rows in different orders would wait for each other.
        connection.execute(upsert, [{**wanted[id_], "used_at": now} for id_ in sorted(wanted)])


def unused_lists(connection: Connection, before: float, most: int) -> list[object]:
    """The ids of lists that were last used before the given time, by nothing that is still there."""
    by_session = exists().where(session.c.tools_available == toolset.c.id, session.c.started_at < before)
    by_exposure = exists().where(
        or_(exposure.c.shown == toolset.c.id, exposure.c.available == toolset.c.id), exposure.c.timestamp < before
    )
    query = select(toolset.c.id).where(toolset.c.used_at < before - UNUSED_SECONDS, ~by_session, ~by_exposure)
    return list(connection.execute(query.limit(most)).scalars())


def remove_lists(connection: Connection, ids: list[object], before: float) -> int:
    """Remove lists unless they were used in the meantime, and give their number."""
    chosen = toolset.c.id.in_(ids) & (toolset.c.used_at < before - UNUSED_SECONDS)
    return connection.execute(delete(toolset).where(chosen)).rowcount
