"""What people and epochs decided: overrides and warm sets."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, delete, select

from riglm.adapters.analytics.lookups import insert_into
from riglm.adapters.analytics.rows import Row
from riglm.adapters.analytics.tables import override, warm_set
from riglm.domain.override import Override, OverrideKind, OverrideScope
from riglm.domain.warm_set import KEPT_SECONDS, WarmSet


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


def get_warm_set(connection: Connection, principal: str, profile: str, epoch_start: float) -> WarmSet | None:
    """The warm set of a principal and profile for one epoch, None when there is none yet."""
    columns = warm_set.c
    query = select(warm_set).where(
        columns.principal == principal, columns.profile == profile, columns.epoch_start == epoch_start
    )
    found = connection.execute(query).mappings().one_or_none()
    return None if found is None else WarmSet(**{**found, "tools": tuple(found["tools"])})


def put_warm_set(connection: Connection, given: WarmSet) -> WarmSet:
    """Store a warm set unless its epoch has one, and give the one that is stored."""
    connection.execute(delete(warm_set).where(warm_set.c.created_at < given.created_at - KEPT_SECONDS))
    row = {
        "principal": given.principal,
        "profile": given.profile,
        "epoch_start": float(given.epoch_start),
        "tools": given.tools,
        "predictor": given.predictor,
        "created_at": float(given.created_at),
    }
    connection.execute(insert_into(connection, warm_set).on_conflict_do_nothing(), [row])
    return get_warm_set(connection, given.principal, given.profile, given.epoch_start) or given


def forget_warm_sets(connection: Connection) -> None:
    """Remove all warm sets."""
    connection.execute(delete(warm_set))


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
