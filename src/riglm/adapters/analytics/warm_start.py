"""What prediction starts from: recent sessions, and learned pairs."""

from collections.abc import Iterator, Sequence
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, select, true

from riglm.adapters.analytics import rows
from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.lookups import slices, toolsets
from riglm.adapters.analytics.queries import ran
from riglm.adapters.analytics.session_uses import SessionRow, to_session_uses
from riglm.adapters.analytics.tables import invocation, learned_pair, session
from riglm.domain.invocation import OWN_UPSTREAM, Found
from riglm.domain.learning import LearnedPair
from riglm.domain.session import PROFILE
from riglm.domain.usage import SessionUse
from riglm.ports.analytics import RecordedCall, RecordedSession

_of_servers = invocation.c.upstream != OWN_UPSTREAM
_teaches = and_(invocation.c.success, _of_servers)


def recent_sessions(
    connection: Connection, limit: int, since: float, principal: str | None = None
) -> Sequence[RecordedSession]:
    """The latest sessions, of a principal or of all, with a successful call, oldest first, with all their uses."""
    columns = session.c
    query = (
        select(
            columns.id,
            columns.started_at,
            columns.client_name,
            columns.client_id,
            columns.principal,
            columns.metadata,
            columns.tools_available,
        )
        .where(
            _is_of(principal),
            columns.started_at >= since,
            exists().where(invocation.c.session_id == columns.id, _teaches),
        )
        .order_by(columns.started_at.desc(), columns.id.desc())
        .limit(limit)
    )
    found = connection.execute(query).all()[::-1]
    names = toolsets(connection, (row.tools_available for row in found))
    calls = _calls(connection, [row.id for row in found])
    return [
        RecordedSession(
            id=row.id,
            started_at=row.started_at,
            client=row.client_name,
            client_id=row.client_id,
            principal=row.principal,
            profile=row.metadata.get(PROFILE, ""),
            tools_available=names[row.tools_available],
            calls=tuple(calls[row.id]),
        )
        for row in found
    ]


def learned_pairs(connection: Connection, model: str, limit: int) -> Sequence[LearnedPair]:
    """The learned pairs of one model, newest first, then the most confident."""
    columns = learned_pair.c
    query = select(learned_pair).where(columns.model == model)
    order = (columns.updated_at.desc(), columns.confidence.desc(), columns.id)
    return [rows.learned_pair_from(row) for row in connection.execute(query.order_by(*order).limit(limit)).mappings()]


def session_uses(connection: Connection, principal: str | None, limit: int) -> Sequence[SessionUse]:
    """Return the latest sessions with a successful call of an upstream tool, newest first."""
    columns, calls = session.c, invocation.c
    is_use = and_(calls.success, calls.upstream != OWN_UPSTREAM)
    query = (
        select(columns.id, columns.started_at, columns.client_name, columns.principal, columns.metadata)
        .where(_is_of(principal), exists().where(calls.session_id == columns.id, is_use))
        .order_by(columns.started_at.desc(), columns.id.desc())
        .limit(limit)
    )
    sessions = [SessionRow(*row) for row in connection.execute(query)]
    found: list[tuple[UUID, str]] = []
    for some in slices([each.id for each in sessions]):
        used = select(calls.session_id, calls.tool).where(calls.session_id.in_(some), is_use)
        ordered = used.order_by(calls.session_id, calls.sequence_number, calls.id)
        found += ((id_, tool) for id_, tool in connection.execute(ordered))
    return to_session_uses(sessions, found)


def prune_learned_pairs(database: Database, most: int, at_once: int) -> Iterator[int]:
    """Remove all learned pairs but the `most` newest, in steps, and give the number of each."""
    while (excess := _pairs(database) - most) > 0:
        oldest = select(learned_pair.c.id).order_by(learned_pair.c.updated_at, learned_pair.c.id)
        chosen = learned_pair.c.id.in_(oldest.limit(min(excess, at_once)))
        with database.writing() as connection:
            removed = connection.execute(delete(learned_pair).where(chosen)).rowcount
        yield removed


def _pairs(database: Database) -> int:
    with database.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(learned_pair)).scalar_one())


def _is_of(principal: str | None) -> ColumnElement[bool]:
    return true() if principal is None else session.c.principal == principal


def _calls(connection: Connection, sessions: Sequence[UUID]) -> dict[UUID, list[RecordedCall]]:
    columns = invocation.c
    found: dict[UUID, list[RecordedCall]] = {id_: [] for id_ in sessions}
    for some in slices(sessions):
        query = select(
            columns.session_id, columns.tool, columns.upstream, columns.found, columns.success, columns.timestamp
        ).where(columns.session_id.in_(some), ran, _of_servers)
        ordered = query.order_by(columns.session_id, columns.sequence_number, columns.id)
        for id_, tool, upstream, how, success, timestamp in connection.execute(ordered):
            found[id_].append(RecordedCall(tool, upstream, Found(how), success, timestamp))
    return found
