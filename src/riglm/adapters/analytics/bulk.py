"""Many new rows put into a table with one statement."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Dialect, String, Table, TypeDecorator
from sqlalchemy.types import TypeEngine

from riglm.adapters.analytics.rows import DatabaseRow

_PLANS: Final = 16


class _Column(NamedTuple):
    """A column, the type that its values are cast to on PostgreSQL, and how they are prepared."""

    name: str
    type_name: str
    prepare: Callable[[Any], Any] | None
    is_text: bool

    def values(self, new: Sequence[DatabaseRow]) -> list[Any]:
        """What the rows have in this column, prepared."""
        values = [row[self.name] for row in new]
        if self.prepare is None:
            return values
        if self.is_text:  # the same few names, over and over
            known = {value: self.prepare(value) for value in set(values)}
            return [known[value] for value in values]
        return [self.prepare(value) for value in values]


class _Plan(NamedTuple):
    """The statement for a table, and its columns."""

    statement: str
    columns: tuple[_Column, ...]


def insert_new(connection: Connection, table: Table, new: Sequence[DatabaseRow]) -> None:
    """Insert the rows whose id is not there yet; each row has all columns.

    SQLite's driver repeats a prepared statement for all rows in C. PostgreSQL gets the columns as arrays in binary
    form: one message, one statement, five times as fast as a statement for each row. Both get their values a column at
    a time, which costs half of what SQLAlchemy's way from row to row does.
    """
    if not new:
        return
    plan = _plan(table, connection.dialect)
    columns = [column.values(new) for column in plan.columns]
    if connection.dialect.name == "postgresql":
        from riglm.adapters.analytics.postgresql import packed  # noqa: PLC0415  # the driver is an extra

        arrays = (packed(column.type_name, values) for column, values in zip(plan.columns, columns, strict=True))
        connection.exec_driver_sql(plan.statement, tuple(arrays))
    else:
        connection.exec_driver_sql(plan.statement, list(zip(*columns, strict=True)))


@lru_cache(_PLANS)
def _plan(table: Table, dialect: Dialect) -> _Plan:
    quote = dialect.identifier_preparer.quote
    columns = tuple(
        _Column(
            column.name,
            _type_name(column.type, dialect),
            column.type.dialect_impl(dialect).bind_processor(dialect),
            _is_text(column.type),
        )
        for column in table.c
    )
    names = ", ".join(quote(column.name) for column in columns)
    if dialect.name == "postgresql":
        arrays = ", ".join(f"%b::{column.type_name}[]" for column in columns)
        values = f"SELECT * FROM unnest({arrays})"  # noqa: S608  # types of our own tables
    else:
        values = f"VALUES ({', '.join('?' * len(columns))})"
    into = f"INSERT INTO {quote(table.name)} ({names})"
    return _Plan(f"{into} {values} ON CONFLICT (id) DO NOTHING", columns)


def _is_text(type_: TypeEngine[Any]) -> bool:
    return isinstance(type_.impl if isinstance(type_, TypeDecorator) else type_, String)


def _type_name(type_: TypeEngine[Any], dialect: Dialect) -> str:
    # A cast to a type with a length would cut what is too long, where the column itself refuses it.
    return "TEXT" if isinstance(type_, String) else dialect.type_compiler_instance.process(type_)
