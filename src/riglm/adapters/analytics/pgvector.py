"""The vectors of learned pairs once more, as pgvector's own type, where a PostgreSQL server has that extension.

So SQL can query the nearest. The table follows `learned_pair` and can be rebuilt from it: it is no part of the
schema that migrations keep, and a database without it lacks nothing else.
"""

import struct
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import Connection, select, text
from sqlalchemy.exc import DBAPIError

from riglm.adapters.analytics.rows import from_bytes
from riglm.adapters.analytics.tables import learned_pair

if TYPE_CHECKING:
    from riglm.domain.prediction import Vector

TABLE: Final = "learned_vector"
"""The name of the table: `pair_id`, and `embedding` of the type `vector`, of any number of dimensions."""

_MAX_DIMENSIONS: Final = 16_000  # of the type
_BATCH_SIZE: Final = 500

_TYPE: Final = text(
    "SELECT atttypid, typarray FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid"
    " WHERE attrelid = to_regclass(:name) AND attname = 'embedding' AND NOT attisdropped"
).bindparams(name=TABLE)
_MAKE: Final = (
    f"CREATE TABLE {TABLE} (pair_id uuid PRIMARY KEY REFERENCES learned_pair (id) ON DELETE CASCADE,"
    " embedding vector NOT NULL)"
)
_PUT: Final = (
    f"INSERT INTO {TABLE} SELECT pair.id, given.embedding"  # noqa: S608  # the name is ours
    " FROM unnest(%b::uuid[], %b::vector[], %b::float8[]) AS given (id, embedding, updated_at)"
    " JOIN learned_pair AS pair ON pair.id = given.id AND pair.updated_at = given.updated_at"
    " ON CONFLICT (pair_id) DO UPDATE SET embedding = excluded.embedding"
)

VectorTable = tuple[UUID, "Vector", float]
"""A learned pair's id, its vector, and when it was updated last."""


def prepare(connection: Connection) -> None:
    """Make the table if it is missing and the server has the extension, or may be given it, and fill it."""
    if _type_of_vectors(connection) is not None or not _can_be_kept(connection):
        return
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {TABLE}")  # what is left when the extension was dropped
    connection.exec_driver_sql(_MAKE)
    columns = learned_pair.c
    stored = connection.execute(select(columns.id, columns.vector, columns.dimensions, columns.updated_at))
    keep(connection, ((row.id, from_bytes(row.vector, row.dimensions), row.updated_at) for row in stored))


def keep(connection: Connection, learned: Iterable[VectorTable]) -> None:
    """Keep the vectors of learned pairs as they are stored; of one that was not stored as given the vector stays.

    Nothing is done where there is no pgvector.
    """
    numbers = _type_of_vectors(connection)
    if numbers is None:
        return
    wire = _wire_form(connection, *numbers)
    fitting = ((id_, wire(vector), at) for id_, vector, at in learned if 0 < len(vector) <= _MAX_DIMENSIONS)
    while some := list(islice(fitting, _BATCH_SIZE)):
        connection.exec_driver_sql(_PUT, tuple(map(list, zip(*some, strict=True))))


def _type_of_vectors(connection: Connection) -> tuple[int, int] | None:
    """The numbers of the type `vector` and its arrays in this database; None when it does not have the table."""
    if connection.dialect.name != "postgresql":
        return None
    found = connection.execute(_TYPE).one_or_none()
    return None if found is None else (found.atttypid, found.typarray)


def _wire_form(connection: Connection, number: int, array_number: int) -> "Callable[[Vector], bytes]":
    """What makes of a vector what pgvector reads in binary form: ten times as fast as text."""
    from psycopg.adapt import Dumper  # noqa: PLC0415  # an extra
    from psycopg.pq import Format  # noqa: PLC0415  # an extra
    from psycopg.types import TypeInfo  # noqa: PLC0415  # an extra

    class Embedding(bytes):
        """Numbers in single precision, big-endian."""

    class EmbeddingDumper(Dumper):
        """Puts their number in front."""

        format = Format.BINARY
        oid = number

        def dump(self, obj: bytes) -> bytes:
            return struct.pack(">HH", len(obj) // 4, 0) + obj

    raw: Any = connection.connection.driver_connection
    TypeInfo("vector", number, array_number).register(raw)
    raw.adapters.register_dumper(Embedding, EmbeddingDumper)
    return lambda vector: Embedding(vector.astype(">f4").tobytes())


def _can_be_kept(connection: Connection) -> bool:
    """Whether the type is there; the extension is added if the user may do that."""
    if connection.dialect.name != "postgresql":
        return False
    if _has_type(connection):
        return True
    offered = "SELECT 1 FROM pg_available_extensions WHERE name = 'vector' AND installed_version IS NULL"
    if connection.execute(text(offered)).first() is None:
        return False
    try:
        with connection.begin_nested():
            connection.exec_driver_sql("CREATE EXTENSION vector")
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return False
    return _has_type(connection)


def _has_type(connection: Connection) -> bool:
    return connection.execute(text("SELECT to_regtype('vector')")).scalar_one() is not None
