"""What is looked up by many values at once."""

import importlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from sqlalchemy import Connection, Table, select

from riglm.adapters.analytics.rows import Names
from riglm.adapters.analytics.tables import session, toolset

_AT_ONCE: Final = 1000  # values in one IN list: databases bound the parameters of a statement

_Value = TypeVar("_Value")


def slices(values: Sequence[_Value]) -> Iterator[Sequence[_Value]]:
    """The values in parts that one statement takes."""
    return (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))


def toolsets(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, Names]:
    """The lists of names with these ids."""
    found: dict[UUID, Names] = {}
    for some in slices(list(set(ids))):
        for id_, names in connection.execute(select(toolset.c.id, toolset.c.names).where(toolset.c.id.in_(some))):
            found[id_] = tuple(names)
    return found


def sessions_there(connection: Connection, ids: Iterable[UUID]) -> set[UUID]:
    """Which of these sessions are stored."""
    found: set[UUID] = set()
    for some in slices(list(ids)):
        found.update(connection.execute(select(session.c.id).where(session.c.id.in_(some))).scalars())
    return found


def insert_into(connection: Connection, table: Table) -> Any:
    """This database's own INSERT, which knows ON CONFLICT."""
    return importlib.import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert(table)
