"""Many new rows put into a table with one statement."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg import Binary
from psycopg.adapt import Dumper
from psycopg.pq import Format
from sqlalchemy import Connection, Dialect, String, Table, TypeDecorator
from sqlalchemy.types import TypeEngine

from riglm.adapters.analytics.rows import Row

_PLANS: Final = 16


class _Column(NamedTuple):
    """A column, the type that its values are cast to on PostgreSQL, and how they are prepared."""

    name: str
    type_name: str
    prepare: Callable[[Any], Any] | None
    is_text: bool

    def values(self, new: Sequence[Row]) -> list[Any]:
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


def insert_new(connection: Connection, table: Table, new: Sequence[Row]) -> None:
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


_HEAD: Final = Struct(">iiIii").pack  # dimensions, whether there may be nulls, the type, how many, the first index
_LENGTH: Final = Struct(">i").pack
_NULL: Final = _LENGTH(-1)
_UUID_LENGTH: Final = _LENGTH(16)
_COLUMNS: Final = 32


class Packed(bytes):
    """An array in binary form; the type of its elements is given by the statement that takes it."""


class PackedDumper(Dumper):
    """Hands an array to the server as it is."""

    format = Format.BINARY
    oid = 0

    def dump(self, obj: Packed) -> Packed:
        """The array."""
        return obj


def packed(type_name: str, values: Sequence[Any]) -> Packed:
    """Values of one of the types in `TYPES`, or None for null, at least one; bytes as SQLAlchemy wraps them.

    Raises `ValueError`, `TypeError`, `AttributeError` or `struct.error` for a value that is not of this type.
    """
    oid, elements = TYPES[type_name]
    return Packed(_HEAD(1, 1, oid, len(values), 1) + elements(values))


def _numbers(code: str) -> Callable[[Sequence[Any]], bytes]:
    one = Struct(f">i{code}")
    length = one.size - 4

    @lru_cache(_COLUMNS)
    def many(count: int) -> Struct:
        return Struct(">" + f"i{code}" * count)

    def elements(values: Sequence[Any]) -> bytes:
        if None in values:
            return b"".join([_NULL if value is None else one.pack(length, value) for value in values])
        mixed = [length] * (2 * len(values))
        mixed[1::2] = values
        return many(len(values)).pack(*mixed)

    return elements


def _uuids(values: Sequence[UUID]) -> bytes:
    return b"".join([_UUID_LENGTH + value.bytes for value in values])


def _texts(values: Sequence[str | None]) -> bytes:
    known = {value: _NULL if value is None else _framed(value.encode()) for value in set(values)}  # few are different
    return b"".join([known[value] for value in values])


def _bytes(values: Sequence[Binary | None]) -> bytes:
    return b"".join([_NULL if value is None else _framed(bytes(value.obj)) for value in values])


def _framed(value: bytes) -> bytes:
    return _LENGTH(len(value)) + value


TYPES: Final[Mapping[str, tuple[int, Callable[[Sequence[Any]], bytes]]]] = {
    "BIGINT": (20, _numbers("q")),
    "BOOLEAN": (16, _numbers("?")),
    "BYTEA": (17, _bytes),
    "DOUBLE PRECISION": (701, _numbers("d")),
    "TEXT": (25, _texts),
    "UUID": (2950, _uuids),
}
"""The types of columns that can be packed: their number in PostgreSQL, and what packs their values."""
