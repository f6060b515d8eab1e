"""Queries for overrides, warm sets, tool catalogs, recent sessions and learned pairs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Double, and_, delete, exists, func, literal, select, true

from riglm.adapters.analytics import rows
from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.queries import ran
from riglm.adapters.analytics.rows import DatabaseRow, insert_into, slices, toolsets
from riglm.adapters.analytics.sqlite_overrides import SessionRow, to_session_uses
from riglm.adapters.analytics.tables import invocation, learned_pair, override, session, tool_catalog, warm_set
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod
from riglm.domain.learning import LearnedPair
from riglm.domain.policy import Override, OverrideKind, OverrideScope
from riglm.domain.session import PROFILE
from riglm.domain.tool import TTL_SECONDS as CATALOG_KEPT_SECONDS
from riglm.domain.tool import StoredToolCatalog
from riglm.domain.usage import TTL_SECONDS, SessionUse, Usage, WarmSet
from riglm.ports.analytics import TrainingCall, TrainingSession

_USAGE: Final = ("evidence", "probabilities", "requests", "distinct_tools")


def put_override(connection: Connection, given: Override) -> None:
    """Store an override, in place of the one with its id, and remove those that had expired when it was made."""
    connection.execute(
        delete(override).where((override.c.expires_at <= given.created_at) | (override.c.id == given.id))
    )
    connection.execute(override.insert(), [_override_row(given)])


def list_overrides(connection: Connection) -> Sequence[Override]:
    """All overrides in the order in which they were made."""
    found = connection.execute(select(override).order_by(override.c.created_at, override.c.id)).mappings()
    return [
        Override(**{**row, "kind": OverrideKind(row["kind"]), "scope": OverrideScope(row["scope"])}) for row in found
    ]


def delete_override(connection: Connection, override_id: UUID) -> bool:
    """Remove an override; False when there is none with this id."""
    return connection.execute(delete(override).where(override.c.id == override_id)).rowcount > 0


def get_warm_set(connection: Connection, principal: str, client: str, profile: str) -> WarmSet | None:
    """Return the warm set of a principal, client and profile, None if there is none."""
    columns = warm_set.c
    query = select(warm_set).where(columns.principal == principal, columns.client == client, columns.profile == profile)
    found = connection.execute(query).mappings().one_or_none()
    if found is None:
        return None
    usage = Usage(**{field: found[field] for field in _USAGE})
    return WarmSet(principal=principal, client=client, profile=profile, usage=usage, created_at=found["created_at"])


def put_warm_set(connection: Connection, given: WarmSet, replaces: float | None) -> WarmSet:
    """Store a warm set in place of the one created at `replaces`, and return the one that is stored."""
    connection.execute(delete(warm_set).where(warm_set.c.created_at < given.created_at - TTL_SECONDS))
    key = {"principal": given.principal, "client": given.client, "profile": given.profile}
    values = {
        "evidence": given.usage.evidence,
        "probabilities": dict(given.usage.probabilities),
        "requests": float(given.usage.requests),
        "distinct_tools": float(given.usage.distinct_tools),
        "created_at": float(given.created_at),
    }
    insert = insert_into(connection, warm_set).values(key | values)
    replaced = warm_set.c.created_at == literal(replaces, Double)
    connection.execute(insert.on_conflict_do_update(index_elements=list(key), set_=values, where=replaced))
    return get_warm_set(connection, **key) or given


def forget_warm_sets(connection: Connection) -> None:
    """Remove all warm sets."""
    connection.execute(delete(warm_set))


def list_tool_catalogs(connection: Connection, fingerprints: Sequence[str]) -> Sequence[StoredToolCatalog]:
    """Return the stored catalogs with these fingerprints."""
    query = select(tool_catalog).where(tool_catalog.c.fingerprint.in_(fingerprints))
    return [StoredToolCatalog(**row) for row in connection.execute(query).mappings()]


def put_tool_catalogs(connection: Connection, given: Iterable[StoredToolCatalog]) -> None:
    """Store catalogs unless there are newer ones, and remove those that have not been refreshed for long."""
    newest: dict[tuple[str, str], StoredToolCatalog] = {}
    for each in given:
        key = (each.fingerprint, each.variant)
        if key not in newest or newest[key].updated_at <= each.updated_at:
            newest[key] = each
    if not newest:
        return
    rows = [asdict(each) for each in newest.values()]
    statement = insert_into(connection, tool_catalog)
    taken = {name: statement.excluded[name] for name in StoredToolCatalog.__dataclass_fields__}
    newer = statement.excluded.updated_at >= tool_catalog.c.updated_at
    connection.execute(
        statement.on_conflict_do_update(index_elements=["fingerprint", "variant"], set_=taken, where=newer), rows
    )
    latest = select(func.max(tool_catalog.c.updated_at)).scalar_subquery()
    connection.execute(delete(tool_catalog).where(tool_catalog.c.updated_at < latest - CATALOG_KEPT_SECONDS))


def _override_row(given: Override) -> DatabaseRow:
    return {
        "id": given.id,
        "kind": given.kind.value,
        "tool": given.tool,
        "scope": given.scope.value,
        "key": given.key,
        "created_at": float(given.created_at),
        "expires_at": given.expires_at,
        "reason": given.reason,
    }


_of_servers = invocation.c.upstream != OWN_UPSTREAM
_teaches = and_(invocation.c.success, _of_servers)


def recent_sessions(
    connection: Connection, limit: int, since: float, principal: str | None = None
) -> Sequence[TrainingSession]:
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
        TrainingSession(
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


def _calls(connection: Connection, sessions: Sequence[UUID]) -> dict[UUID, list[TrainingCall]]:
    columns = invocation.c
    found: dict[UUID, list[TrainingCall]] = {id_: [] for id_ in sessions}
    for some in slices(sessions):
        query = select(
            columns.session_id, columns.tool, columns.upstream, columns.found, columns.success, columns.timestamp
        ).where(columns.session_id.in_(some), ran, _of_servers)
        ordered = query.order_by(columns.session_id, columns.sequence_number, columns.id)
        for id_, tool, upstream, how, success, timestamp in connection.execute(ordered):
            found[id_].append(TrainingCall(tool, upstream, DiscoveryMethod(how), success, timestamp))
    return found
