"""What was shown, and what that came to."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, RowMapping, Subquery, and_, case, func, select

from riglm.adapters.analytics import rows
from riglm.adapters.analytics.lookups import slices, toolsets
from riglm.adapters.analytics.tables import exposure
from riglm.domain.exposure import ANSWER_SURFACES, SEARCH_SURFACE, Exposure, ExposureTotals


class SessionShown(NamedTuple):
    """How much one session was shown."""

    exposures: int
    lists: int
    list_changes: int
    searches: int


NOTHING_SHOWN: Final = SessionShown(0, 0, 0, 0)


def exposures(connection: Connection, session_ids: Sequence[UUID]) -> Sequence[Exposure]:
    """Return the exposures of sessions, each session's in the order of their time."""
    found: list[RowMapping] = []
    for some in slices(session_ids):
        query = select(exposure).where(exposure.c.session_id.in_(some))
        found += connection.execute(query.order_by(exposure.c.timestamp, exposure.c.id)).mappings()
    names = toolsets(connection, (row[column] for row in found for column in ("shown", "available")))
    return [rows.exposure_from(row, names) for row in found]


def shown_by_session(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, SessionShown]:
    """How much each of these sessions was shown; those that were shown nothing are missing."""
    found: dict[UUID, SessionShown] = {}
    for some in slices(ids):
        each = _compared(exposure.c.session_id.in_(some))
        sums = map(func.sum, (each.c.listed, each.c.changed, each.c.searched))
        query = select(each.c.session_id, func.count(), *sums)
        for id_, *numbers in connection.execute(query.group_by(each.c.session_id)):
            found[id_] = SessionShown(*map(int, numbers))
    return found


def totals(connection: Connection, since: float) -> Sequence[ExposureTotals]:
    """What was shown since the given time came to, for each mode that occurred, in the order of their names."""
    each = _compared(exposure.c.timestamp >= since)
    listed = each.c.listed
    query = select(
        each.c.mode,
        func.count(each.c.session_id.distinct()).label("sessions"),
        func.sum(listed).label("lists"),
        func.sum(each.c.changed).label("changes"),
        func.sum(each.c.searched).label("searches"),
        func.sum(each.c.tokens_shown * listed).label("tokens_shown"),
        func.sum(each.c.tokens_hidden * listed).label("tokens_hidden"),
        func.sum(each.c.tokens_own * listed + each.c.tokens_shown * (1 - listed)).label("tokens_own"),
        func.sum(each.c.tokens_shown * each.c.changed).label("tokens_resent"),
    )
    found = connection.execute(query.group_by(each.c.mode).order_by(each.c.mode))
    return [ExposureTotals(mode=mode, **_integers(numbers, query)) for mode, *numbers in found]


def _compared(chosen: ColumnElement[bool]) -> Subquery:
    """The chosen exposures, each with whether it is a list, a search, or a list unlike the session's one before."""
    columns = exposure.c
    listed = case((columns.surface.in_(sorted(ANSWER_SURFACES)), 0), else_=1)
    order = (columns.timestamp, columns.id)
    before = func.lag(columns.shown).over(partition_by=(columns.session_id, listed), order_by=order)
    return (
        select(
            columns.session_id,
            columns.mode,
            columns.tokens_shown,
            columns.tokens_hidden,
            columns.tokens_own,
            listed.label("listed"),
            case((columns.surface == SEARCH_SURFACE, 1), else_=0).label("searched"),
            case((and_(listed == 1, before.is_not(None), before != columns.shown), 1), else_=0).label("changed"),
        )
        .where(chosen)
        .subquery()
    )


def _integers(numbers: Sequence[Any], query: Any) -> dict[str, int]:
    """Sums by name; some databases give decimals."""
    return {column.name: int(number) for column, number in zip(query.selected_columns[1:], numbers, strict=True)}
