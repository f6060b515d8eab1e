"""What a first list is made from: overrides, warm sets and tool catalogs."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, Double, delete, func, literal, select

from riglm.adapters.analytics.lookups import insert_into
from riglm.adapters.analytics.rows import Row
from riglm.adapters.analytics.tables import override, tool_catalog, warm_set
from riglm.domain.override import Override, OverrideKind, OverrideScope
from riglm.domain.tool_catalog import KEPT_SECONDS as CATALOG_KEPT_SECONDS
from riglm.domain.tool_catalog import ToolCatalog
from riglm.domain.usage import Usage
from riglm.domain.warm_set import KEPT_SECONDS, WarmSet

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
    connection.execute(delete(warm_set).where(warm_set.c.created_at < given.created_at - KEPT_SECONDS))
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


def list_tool_catalogs(connection: Connection, fingerprints: Sequence[str]) -> Sequence[ToolCatalog]:
    """Return the stored catalogs with these fingerprints."""
    query = select(tool_catalog).where(tool_catalog.c.fingerprint.in_(fingerprints))
    return [ToolCatalog(**row) for row in connection.execute(query).mappings()]


def put_tool_catalogs(connection: Connection, given: Iterable[ToolCatalog]) -> None:
    """Store catalogs unless there are newer ones, and remove those that have not been refreshed for long."""
    newest: dict[tuple[str, str], ToolCatalog] = {}
    for each in given:
        key = (each.fingerprint, each.variant)
        if key not in newest or newest[key].updated_at <= each.updated_at:
            newest[key] = each
    if not newest:
        return
    rows = [asdict(each) for each in newest.values()]
    statement = insert_into(connection, tool_catalog)
    taken = {name: statement.excluded[name] for name in ToolCatalog.__dataclass_fields__}
    newer = statement.excluded.updated_at >= tool_catalog.c.updated_at
    connection.execute(
        statement.on_conflict_do_update(index_elements=["fingerprint", "variant"], set_=taken, where=newer), rows
    )
    latest = select(func.max(tool_catalog.c.updated_at)).scalar_subquery()
    connection.execute(delete(tool_catalog).where(tool_catalog.c.updated_at < latest - CATALOG_KEPT_SECONDS))


def _override_row(given: Override) -> Row:
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
