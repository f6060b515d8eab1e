"""Arrays as PostgreSQL reads them in binary form, packed a whole column at a time.

The driver's own way is a few calls of Python for each value, which costs as much as all the rest of storing it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final
from uuid import UUID

from psycopg import Binary
from psycopg.adapt import Dumper
from psycopg.pq import Format

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
