"""PostgreSQL: connections, timeouts, locks, and the vectors of pgvector."""

import math
import selectors
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

import msgspec
import psycopg
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.exc import DBAPIError, DisconnectionError, SQLAlchemyError

from riglm.adapters.analytics.engine import APART, SECONDS
from riglm.adapters.analytics.rows import from_bytes
from riglm.adapters.analytics.tables import VECTOR_TABLE, learned_pair
from riglm.domain.errors import AnalyticsUnavailableError

if TYPE_CHECKING:
    from riglm.domain.prediction import Vector

_GRACE_SECONDS: Final = 1.0  # a server that works ends a statement by itself first, and keeps its connection
_MIN_CONNECT_SECONDS: Final = 2  # the driver's own least
_IDLE_SECONDS: Final = 60  # a riglm that stopped in mid-transaction holds others up no longer
_MAX_SECONDS: Final = 86_400.0
_KEEPALIVE: Final = {"idle": 5, "interval": 3, "count": 3}  # a vanished peer is noticed within 15 s
_KEPT, _MORE = 1, 4  # connections: a process has several stores, and a server does not have many connections
_READ_ONLY: Final = "25006"
_SCHEMA: Final = "hashtext(coalesce(current_schema(), ''))"  # each schema of a database is a separate store
_TRY_LEASE: Final = sa.text(f"SELECT pg_try_advisory_xact_lock({0x7269676C}, {_SCHEMA})")  # "rigl"
_WAIT_FOR_MIGRATIONS: Final = sa.text(f"SELECT pg_advisory_xact_lock({0x7269676D}, {_SCHEMA})")  # "rigm"

_Answer = TypeVar("_Answer")


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is given up when the server says nothing for `timeout_seconds` seconds.

    The server's own time limits do not help when it is frozen or cut off: nothing then ends a wait but the client.
    """

    timeout_seconds: float = _MAX_SECONDS

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """As the driver's own, with an end."""
        return super().wait(self._bounded(gen), interval)

    def _bounded(self, waits: Generator[Any, Any, _Answer]) -> Generator[Any, Any, _Answer]:
        """Go on as long as the driver waits, and break the connection when that takes too long."""
        until = time.monotonic() + self.timeout_seconds
        ready = None
        try:
            while True:
                ready = yield waits.send(ready)
                if not ready and time.monotonic() > until:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"the server did not answer within {self.timeout_seconds:g} s")
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def make_engine(url: str, timeout: float) -> sa.Engine:
    """An engine that has not connected yet. The URL is read by PostgreSQL's own library, with all that it knows."""
    parameters = _parameters(url, timeout)

    def connect() -> BoundedConnection:
        made = BoundedConnection.connect(**parameters, autocommit=True, prepare_threshold=None)
        made.timeout_seconds = timeout + _GRACE_SECONDS
        try:
            _refuse_other_encodings(made)
            made.execute(_session_settings(timeout))
            made.autocommit = False
        except BaseException:
            made.close()
            raise
        return made

    engine = sa.create_engine(
        "postgresql+psycopg://",
        creator=connect,
        hide_parameters=True,
        use_native_hstore=False,
        pool_timeout=timeout,
        pool_size=_KEPT,
        max_overflow=_MORE,
    )
    sa.event.listen(engine, "begin", _Beginning(timeout))
    sa.event.listen(engine, "checkout", _drop_if_hung_up)
    sa.event.listen(engine, "handle_error", _leave_what_is_read_only)
    return engine


@contextmanager
def lease(engine: sa.Engine) -> Iterator[bool]:
    """Hold the maintenance lease of this schema if it is free; it ends with the connection, for any reason."""
    connection = engine.connect()
    try:
        mine = bool(connection.execute(_TRY_LEASE).scalar_one())
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield mine
    finally:
        with suppress(SQLAlchemyError):
            connection.close()


def wait_for_migrations(connection: sa.Connection) -> None:
    """Wait until no other process changes this schema; until the transaction ends no other process will."""
    connection.execute(_WAIT_FOR_MIGRATIONS)


class _Beginning:
    """Sends the statement timeout of a new transaction to the server and the driver."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    def __call__(self, connection: sa.Connection) -> None:
        raw: Any = connection.connection.driver_connection
        raw.timeout_seconds = self._timeout + _GRACE_SECONDS
        options = connection.get_execution_options()
        seconds = options.get(SECONDS)
        if options.get(APART):
            raw.autocommit = True
        if seconds is not None:
            connection.exec_driver_sql(_time_limits(seconds, "SESSION" if options.get(APART) else "LOCAL"))
            raw.timeout_seconds = seconds + _GRACE_SECONDS


def _parameters(url: str, timeout: float) -> dict[str, Any]:
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:  # it may quote the password
        raise AnalyticsUnavailableError(
            "the URL of the analytics store cannot be read — fix: write "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with unusual characters as %XX"
        ) from None
    bounds = {
        "connect_timeout": max(_MIN_CONNECT_SECONDS, math.ceil(timeout)),
        **{f"keepalives_{name}": value for name, value in _KEEPALIVE.items()},
    }
    taken = {name: value for name, value in given.items() if name not in bounds or _is_tighter(value, bounds[name])}
    return {"application_name": "riglm", **bounds, **taken, "keepalives": 1, "client_encoding": "UTF8"}


def _is_tighter(given: Any, bound: int) -> bool:
    """True if a bound of the URL may replace riglm's: 0 is none. The library rejects what is no number."""
    try:
        return 0 < int(given) <= bound
    except ValueError:
        return True


def _refuse_other_encodings(made: BoundedConnection) -> None:
    encoding = made.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise AnalyticsUnavailableError(
            f"the database {made.info.dbname} has the encoding {encoding}, which not every tool's name fits — fix: "
            "make one with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )


def _session_settings(timeout: float) -> str:
    alive = [f"SET tcp_keepalives_{name} = {value}" for name, value in _KEEPALIVE.items()]
    idle = f"SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'"
    return "; ".join([_time_limits(timeout, "SESSION"), idle, *alive])


def _time_limits(seconds: float, scope: str) -> str:
    limit = max(1, int(seconds * 1000))
    return f"SET {scope} statement_timeout = {limit}; SET {scope} lock_timeout = {limit}"


def _drop_if_hung_up(raw: Any, _record: Any, _proxy: Any) -> None:
    """Take no connection on which the server said something unasked: mostly that it ends. This costs no round trip."""
    with selectors.DefaultSelector() as selector:
        selector.register(raw.pgconn.socket, selectors.EVENT_READ)
        if selector.select(0):
            raise DisconnectionError("the server has ended the connection")


def _leave_what_is_read_only(context: sa.ExceptionContext) -> None:
    """A primary that became a standby remains one: connect again, perhaps to the new primary."""
    if getattr(context.original_exception, "sqlstate", None) == _READ_ONLY:
        context.is_disconnect = True


# The vectors of learned pairs once more, as pgvector's own type, where the server has that extension, so that SQL can
# query the nearest. The table follows `learned_pair` and can be rebuilt from it: it is no part of the schema that
# migrations keep, and a database without it lacks nothing else.

_MAX_DIMENSIONS: Final = 16_000  # of the type
_BATCH_SIZE: Final = 100  # with an index of the user's a vector takes milliseconds, and a statement has five seconds

_HAS_TABLE: Final = sa.text(
    "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(:name) AND attname = 'embedding' AND NOT attisdropped"
).bindparams(name=VECTOR_TABLE)
_MAKE: Final = (
    f"CREATE TABLE {VECTOR_TABLE} (pair_id uuid PRIMARY KEY REFERENCES learned_pair (id) ON DELETE CASCADE,"
    " embedding vector NOT NULL)"
)
_PUT: Final = (
    f"INSERT INTO {VECTOR_TABLE} SELECT pair.id, given.embedding::vector"  # noqa: S608  # the name is ours
    " FROM unnest(%s::uuid[], %s::text[], %s::float8[]) AS given (id, embedding, updated_at)"
    " JOIN learned_pair AS pair ON pair.id = given.id AND pair.updated_at = given.updated_at"
    " ON CONFLICT (pair_id) DO UPDATE SET embedding = excluded.embedding"
)

LearnedVector = tuple[UUID, "Vector", float]
"""A learned pair's id, its vector, and when it was updated last."""


def prepare_vectors(connection: sa.Connection) -> None:
    """Make the table if it is missing and the server has the extension, or may be given it, and fill it."""
    if _has_table(connection) or not _can_be_kept(connection):
        return
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {VECTOR_TABLE}")  # what is left when the extension was dropped
    connection.exec_driver_sql(_MAKE)
    columns = learned_pair.c
    stored = connection.execute(sa.select(columns.id, columns.vector, columns.dimensions, columns.updated_at))
    keep_vectors(connection, ((row.id, from_bytes(row.vector, row.dimensions), row.updated_at) for row in stored))


def keep_vectors(connection: sa.Connection, learned: Iterable[LearnedVector]) -> None:
    """Keep the vectors of learned pairs as they are stored; of one that was not stored as given the vector stays.

    Nothing is done where there is no pgvector.
    """
    if _has_table(connection):
        fitting = (each for each in learned if 0 < len(each[1]) <= _MAX_DIMENSIONS)
        written = ((id_, msgspec.json.encode(vector.tolist()).decode(), at) for id_, vector, at in fitting)
        while some := list(islice(written, _BATCH_SIZE)):
            connection.exec_driver_sql(_PUT, tuple(map(list, zip(*some, strict=True))))


def _has_table(connection: sa.Connection) -> bool:
    """Whether this database has the table, and the type."""
    return connection.execute(_HAS_TABLE).first() is not None


def _can_be_kept(connection: sa.Connection) -> bool:
    """Whether the type is there; the extension is added if the user may do that."""
    offered = "SELECT 1 FROM pg_available_extensions WHERE name = 'vector' AND installed_version IS NULL"
    if not _has_type(connection) and connection.execute(sa.text(offered)).first() is not None:
        try:
            with connection.begin_nested():
                connection.exec_driver_sql("CREATE EXTENSION vector")
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
    return _has_type(connection)


def _has_type(connection: sa.Connection) -> bool:
    return connection.execute(sa.text("SELECT to_regtype('vector')")).scalar_one() is not None
