"""What prediction starts from: recent sessions, and learned pairs."""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from sqlalchemy import Connection, and_, case, delete, exists, func, select, true

from riglm.adapters.analytics import rows
from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.lookups import slices, toolsets
from riglm.adapters.analytics.queries import ran
from riglm.adapters.analytics.tables import invocation, learned_pair, session
from riglm.domain.invocation import OWN_UPSTREAM, Found
from riglm.domain.learning import LearnedPair
from riglm.domain.session import PROFILE
from riglm.ports.analytics import RecordedCall, RecordedSession
from riglm.ports.warm_sets import HALF_SECONDS, MOST_USES

_of_servers = invocation.c.upstream != OWN_UPSTREAM
_teaches = and_(invocation.c.success, _of_servers)


def recent_sessions(
    connection: Connection, limit: int, since: float, principal: str | None = None
) -> Sequence[RecordedSession]:
    """The latest sessions, of a principal or of all, with a successful call, oldest first, with all their uses."""
    columns = session.c
    whose = true() if principal is None else columns.principal == principal
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
        .where(whose, columns.started_at >= since, exists().where(invocation.c.session_id == columns.id, _teaches))
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


def recent_use(connection: Connection, now: float, principal: str | None) -> Mapping[str, float]:
    """How much each tool was used of late, by a principal or by all."""
    query = select(invocation.c.tool, invocation.c.timestamp).where(_teaches)
    if principal is not None:
        query = query.where(invocation.c.session_id.in_(select(session.c.id).where(session.c.principal == principal)))
    latest = query.order_by(invocation.c.timestamp.desc()).limit(MOST_USES).subquery().c
    age = case((latest.timestamp < now, now - latest.timestamp), else_=0.0)
    worth = func.sum(1.0 / (1.0 + age / HALF_SECONDS))
    return dict(connection.execute(select(latest.tool, worth).group_by(latest.tool)).all())


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
