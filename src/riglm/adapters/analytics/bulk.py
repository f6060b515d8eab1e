"""Many new rows put into a table with one statement."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Dialect, String, Table

from riglm.adapters.analytics.lookups import insert_into
from riglm.adapters.analytics.rows import Row

_PLANS: Final = 16


class _Plan(NamedTuple):
    """The statement for a table on PostgreSQL, and how each column's values are prepared for it."""

    statement: str
    columns: tuple[tuple[str, Callable[[Any], Any] | None], ...]


def insert_new(connection: Connection, table: Table, new: Sequence[Row]) -> None:
    """Insert the rows whose id is not there yet; each row has all columns.

    SQLite's driver repeats a prepared statement for all rows in C. PostgreSQL gets the columns as arrays in binary
    form: one message, one statement, five times as fast as a statement for each row.
    """
    if not new:
        return
    if connection.dialect.name != "postgresql":
        connection.execute(insert_into(connection, table).on_conflict_do_nothing(index_elements=["id"]), new)
        return
    plan = _plan(table, connection.dialect)
    arrays = [
        [row[name] for row in new] if prepare is None else [prepare(row[name]) for row in new]
        for name, prepare in plan.columns
    ]
    connection.exec_driver_sql(plan.statement, tuple(arrays))


@lru_cache(_PLANS)
def _plan(table: Table, dialect: Dialect) -> _Plan:
    quote = dialect.identifier_preparer.quote
    names = ", ".join(quote(column.name) for column in table.c)
    arrays = ", ".join(f"%b::{_type_name(column.type, dialect)}[]" for column in table.c)
    into = f"INSERT INTO {quote(table.name)} ({names})"
    return _Plan(
        f"{into} SELECT * FROM unnest({arrays}) ON CONFLICT (id) DO NOTHING",  # noqa: S608  # names of our own tables
        tuple((column.name, column.type.dialect_impl(dialect).bind_processor(dialect)) for column in table.c),
    )


def _type_name(type_: Any, dialect: Dialect) -> str:
    # A cast to a type with a length would cut what is too long, where the column itself refuses it.
    return "TEXT" if isinstance(type_, String) else dialect.type_compiler_instance.process(type_)
