"""Domain records as rows of the tables, and back."""

import hashlib
import importlib
import math
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

import sqlalchemy as sa

from riglm.adapters.analytics.prediction_store import to_json
from riglm.adapters.analytics.tables import exposure, invocation, session, toolset
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import DiscoveryMethod, ErrorKind, ToolInvocation
from riglm.domain.learning import LearnedPair
from riglm.domain.retention import DAY_SECONDS
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport

if TYPE_CHECKING:
    from riglm.domain.prediction import Vector


def is_sound(array: "Vector") -> bool:
    """Whether it is a vector or a matrix of finite numbers."""
    import numpy as np  # noqa: PLC0415  # a writer that never meets a vector need not load it

    return array.ndim in {1, 2} and bool(np.isfinite(array).all())


def to_bytes(array: "Vector") -> bytes:
    """The numbers of an array, row by row."""
    import numpy as np  # noqa: PLC0415  # see is_sound

    return np.ascontiguousarray(array, dtype="<f4").tobytes()


def from_bytes(data: bytes, dimensions: int, rows: int | None = None) -> "Vector":
    """The array of these bytes, which cannot be changed: a vector, or a matrix when `rows` is not None."""
    import numpy as np  # noqa: PLC0415  # see is_sound

    shape = (dimensions,) if rows is None else (rows, dimensions)
    return np.frombuffer(data, dtype="<f4").reshape(shape)


_CALL_COLUMNS: Final = tuple(invocation.c.keys())
_WORD_BITS: Final = 64
_MAX_HASH_LENGTH: Final = 64
_MAX_WORD_LENGTH: Final = 16
_BATCH_SIZE: Final = 1000  # values in one IN list: databases bound the parameters of a statement

DatabaseRow = dict[str, Any]
NameTuple = tuple[str, ...]

_Value = TypeVar("_Value")


def count_within(limit: int, sizes: Sequence[int]) -> int:
    """Return how many of the first sizes add up to at most the limit; one at least."""
    return max(1, sum(total <= limit for total in accumulate(sizes)))


def finite(number: float) -> float:
    """The number. Raises `ValueError` for one that is none or endless: SQLite takes those for null, others do not."""
    number = float(number)
    if not math.isfinite(number):
        raise ValueError(f"{number} is no finite number")
    return number


def _text(value: str, length: int) -> str:
    """The text. Raises for what is none, or longer than its column: SQLite takes both, others do not."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is no text")
    if len(value) > length:
        raise ValueError(f"a text of {len(value)} characters is longer than {length}")
    return value


def _named(values: dict[str, str]) -> dict[str, str]:
    """The values by name. Raises `TypeError` for what is none."""
    if not isinstance(values, dict):
        raise TypeError(f"{type(values).__name__} holds no values by name")
    return values


@lru_cache(maxsize=64)
def toolset_id(names: NameTuple) -> UUID:
    """The id of a list of names: equal lists have equal ids in every process. Raises `TypeError` for any other."""
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError("this is no list of names")
    return UUID(bytes=hashlib.sha256(to_json(names).encode("ascii")).digest()[:16])


def session_row(session: Session) -> DatabaseRow:
    """A session; its tools available are a toolset, its sequence follows from its invocations."""
    return {
        "id": session.id,
        "started_at": finite(session.started_at),
        "ended_at": None if session.ended_at is None else max(finite(session.ended_at), session.started_at),
        "era": session.era.value,
        "transport": session.transport.value,
        "method": session.method.value,
        "confidence": session.confidence.value,
        "client_name": session.client.name,
        "client_version": session.client.version,
        "client_id": _text(session.client_id, _MAX_HASH_LENGTH),
        "principal": _text(session.principal, _MAX_HASH_LENGTH),
        "project": _text(session.project, _MAX_HASH_LENGTH),
        "protocol_version": session.protocol_version,
        "keys": _named(session.keys),
        "metadata": _named(session.metadata),
        "tools_available": toolset_id(session.tools_available),
    }


def session_from(row: Mapping[Any, Any], tools_available: NameTuple, sequence: int) -> Session:
    """The session of a row."""
    fields = {
        **row,
        "era": ProtocolEra(row["era"]),
        "transport": Transport(row["transport"]),
        "method": IdentificationMethod(row["method"]),
        "tools_available": tools_available,
    }
    client = ClientInfo(name=fields.pop("client_name"), version=fields.pop("client_version"))
    del fields["confidence"]
    return Session(**fields, client=client, sequence=sequence)


def invocation_values(
    call: ToolInvocation, text: Callable[[str], str], id_: UUID | bytes, session_id: UUID | bytes
) -> tuple[Any, ...]:
    """An invocation in the order of its columns, with ids as the database takes them, and texts as `text` gives them.

    Without an error code, which a server may choose, that is too large for a database.
    """
    kind, code, raw, hash_ = call.error_kind, call.error_code, call.arguments, call.arguments_hash
    at, duration = call.timestamp, call.duration_ms
    if not (math.isfinite(at) and math.isfinite(duration)):
        raise ValueError("a time is no finite number")
    if not isinstance(hash_, str) or len(hash_) > _MAX_HASH_LENGTH:
        raise ValueError("this is no hash")
    return (
        id_,
        session_id,
        text(call.tool),
        text(call.upstream),
        at,
        duration,
        operator.index(call.success),
        operator.index(call.sequence_number),
        hash_,
        None if raw is None else text(raw),
        None if kind is None else kind._value_,
        None if code is None or code.bit_length() >= _WORD_BITS else code,
        call.found._value_,
    )


def invocation_row(call: ToolInvocation, text: Callable[[str], str]) -> DatabaseRow:
    """An invocation by column."""
    return dict(zip(_CALL_COLUMNS, invocation_values(call, text, call.id, call.session_id), strict=True))


def invocation_from(row: Mapping[Any, Any]) -> ToolInvocation:
    """The invocation of a row."""
    kind = row["error_kind"]
    return ToolInvocation(
        **{**row, "error_kind": None if kind is None else ErrorKind(kind), "found": DiscoveryMethod(row["found"])}
    )


def exposure_row(exposure: Exposure) -> DatabaseRow:
    """An exposure: what was shown and what was available are toolsets; what was hidden is the difference."""
    return {
        "id": exposure.id,
        "session_id": exposure.session_id,
        "timestamp": finite(exposure.timestamp),
        "shown": toolset_id(exposure.shown),
        "available": toolset_id(exposure.available),
        "predictor": exposure.predictor,
        "reason": exposure.reason,
        "mode": _text(exposure.mode, _MAX_WORD_LENGTH),
        "surface": _text(exposure.surface, _MAX_WORD_LENGTH),
        "tokens_shown": operator.index(exposure.tokens_shown),
        "tokens_hidden": operator.index(exposure.tokens_hidden),
        "tokens_own": operator.index(exposure.tokens_own),
    }


def exposure_from(row: Mapping[Any, Any], toolsets: Mapping[UUID, NameTuple]) -> Exposure:
    """The exposure of a row."""
    shown, available = toolsets[row["shown"]], toolsets[row["available"]]
    told = {name: value for name, value in row.items() if name not in {"shown", "available"}}
    return Exposure(**told, shown=shown, hidden=tuple(sorted(set(available) - set(shown))))


def learned_pair_row(pair: LearnedPair) -> DatabaseRow:
    """A learned pair. Raises `ValueError` when its vector is not a row of finite numbers."""
    if pair.vector.ndim != 1 or not is_sound(pair.vector):
        raise ValueError("the vector of a learned pair is not a row of finite numbers")
    return {
        "id": pair.id,
        "scope": pair.scope,
        "tool": pair.tool,
        "model": pair.model,
        "dimensions": len(pair.vector),
        "vector": to_bytes(pair.vector),
        "confidence": finite(pair.confidence),
        "uses": int(pair.uses),
        "updated_at": finite(pair.updated_at),
        "description_hash": pair.description_hash,
        "terms": [int(term) for term in pair.terms],
    }


def learned_pair_from(row: Mapping[Any, Any]) -> LearnedPair:
    """The learned pair of a row."""
    told = {name: value for name, value in row.items() if name != "dimensions"}
    told |= {"vector": from_bytes(row["vector"], row["dimensions"]), "terms": tuple(row["terms"])}
    return LearnedPair(**told)


def slices(values: Sequence[_Value], size: int = _BATCH_SIZE) -> Iterator[Sequence[_Value]]:
    """The values in parts that one statement takes."""
    return (values[start : start + size] for start in range(0, len(values), size))


def count(connection: sa.Connection, table: sa.FromClause, *chosen: sa.ColumnElement[bool]) -> int:
    """Return the number of chosen rows."""
    return int(connection.execute(sa.select(sa.func.count()).select_from(table).where(*chosen)).scalar_one())


def delete_rows(connection: sa.Connection, column: sa.Column[Any], values: Sequence[Any]) -> int:
    """Delete the rows that have one of these values in a column, and return their number."""
    table = column.table
    return sum(connection.execute(sa.delete(table).where(column.in_(some))).rowcount for some in slices(values))


def rows_in(
    connection: sa.Connection, query: sa.Select[Any], column: sa.Column[Any], values: Iterable[Any]
) -> Iterator[Any]:
    """Return the rows of a query that have one of these values in a column."""
    return (row for some in slices(list(values)) for row in connection.execute(query.where(column.in_(some))))


def toolsets(connection: sa.Connection, ids: Iterable[UUID]) -> dict[UUID, NameTuple]:
    """The lists of names with these ids."""
    found = rows_in(connection, sa.select(toolset.c.id, toolset.c.names), toolset.c.id, set(ids))
    return {id_: tuple(names) for id_, names in found}


def sessions_there(connection: sa.Connection, ids: Iterable[UUID]) -> set[UUID]:
    """Which of these sessions are stored."""
    return {row.id for row in rows_in(connection, sa.select(session.c.id), session.c.id, ids)}


def insert_into(connection: sa.Connection, table: sa.Table) -> Any:
    """This database's own INSERT, which knows ON CONFLICT."""
    return importlib.import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert(table)


def upsert(
    connection: sa.Connection,
    table: sa.Table,
    new: Sequence[DatabaseRow],
    *,
    merge: Callable[[Any], DatabaseRow] = lambda _: {},
    newest_by: sa.Column[float] | None = None,
) -> None:
    """Insert rows, each in place of the one with its primary key.

    `merge` is given the new row, and returns the values of columns that are not taken from it. With `newest_by` a row
    stays if that column has a greater value than in the new one, and one that is not in the future.
    """
    if new:
        insert = insert_into(connection, table)
        given = insert.excluded
        taken = {column.name: given[column.name] for column in table.c if not column.primary_key} | merge(given)
        is_newer = None if newest_by is None else (given[newest_by.name] >= newest_by) | (newest_by > time.time())
        if taken:
            insert = insert.on_conflict_do_update(table.primary_key, set_=taken, where=is_newer)
        else:
            insert = insert.on_conflict_do_nothing()
        connection.execute(insert, list(new))


UNUSED_SECONDS: Final = 2 * DAY_SECONDS
"""Seconds that a list is kept longer than anything that refers to it: its use is noted once a day, by any clock."""


def keep_lists(connection: sa.Connection, lists: Iterable[NameTuple]) -> None:
    """Store the lists that are not stored, and note the use of those that were not used today.

    A list that was used today is safe from removal, so that its row need not be locked, which every writer uses.
    """
    wanted = {toolset_id(names): names for names in lists}
    now = time.time()
    fresh = sa.select(toolset.c.id).where(toolset.c.used_at > now - DAY_SECONDS)
    for row in rows_in(connection, fresh, toolset.c.id, wanted):
        del wanted[row.id]
    if wanted:
        new = insert_into(connection, toolset)
        touch = new.on_conflict_do_update(index_elements=["id"], set_={"used_at": new.excluded.used_at})
        # In one order for all: two writers that lock the same rows in different orders would wait for each other.
        connection.execute(touch, [{"id": id_, "names": wanted[id_], "used_at": now} for id_ in sorted(wanted)])


def unused_lists(before: float, most: int) -> sa.Select[UUID]:
    """Return the query for the ids of lists that were last used before a time, by nothing that is still there."""
    by_session = sa.exists().where(session.c.tools_available == toolset.c.id, session.c.started_at < before)
    by_exposure = sa.exists().where(
        sa.or_(exposure.c.shown == toolset.c.id, exposure.c.available == toolset.c.id), exposure.c.timestamp < before
    )
    query = sa.select(toolset.c.id).where(toolset.c.used_at < before - UNUSED_SECONDS, ~by_session, ~by_exposure)
    return query.limit(most)


def remove_lists(connection: sa.Connection, ids: Sequence[UUID], before: float) -> int:
    """Remove lists unless they were used in the meantime, and give their number."""
    chosen = toolset.c.id.in_(ids) & (toolset.c.used_at < before - UNUSED_SECONDS)
    return connection.execute(sa.delete(toolset).where(chosen)).rowcount
