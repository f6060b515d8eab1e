"""Usage kept in a SQL database, and the queries of the dashboard."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Self
from uuid import UUID

from riglm.adapters.analytics import storing
from riglm.adapters.analytics.database import Database, FalseCorruptionError, FileReplacedError
from riglm.adapters.analytics.engine import TIMEOUT_SECONDS, is_conflict, is_postgresql
from riglm.adapters.analytics.forgetting import SqlErasure
from riglm.adapters.analytics.maintenance import SqlMaintenance
from riglm.adapters.analytics.prediction_store import Execute, PredictionStatements
from riglm.adapters.analytics.queries import SqlQueries
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.invocation import ToolInvocation
from riglm.ports.analytics import AnalyticsPort, Record, RecordRejectedError

_ATTEMPTS: Final = 3  # of a transaction that conflicted, or met a file that was replaced or repaired


class SqlAnalytics(SqlQueries, SqlMaintenance, SqlErasure, PredictionStatements, AnalyticsPort):
    """Keeps usage in the SQLite or PostgreSQL database at a URL; entering it connects and upgrades the schema.

    Raises `SchemaTooNewError` on entering when a newer riglm wrote the store. `timeout` is how many seconds a record
    waits for another process that holds the database, or for the server's answer; questions and maintenance may take
    longer. With `durable` what SQLite stored survives a power cut. With `is_quarantining` a damaged SQLite file gets
    another name, and a new one is begun: for processes that record or maintain. `names` gives the keyed hash of the
    name of a client, by which it is noted that it was forgotten; without it the name itself is. One object may serve
    several threads.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = TIMEOUT_SECONDS,
        durable: bool = False,
        is_quarantining: bool = False,
        names: Callable[[str], str] = str,
    ) -> None:
        super().__init__()
        self._names = names
        self._is_postgresql = is_postgresql(url)
        self._database = Database(url, timeout=timeout, durable=durable, is_quarantining=is_quarantining)

    def __enter__(self) -> Self:
        self._database.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def maintenance_lease(self) -> AbstractContextManager[bool]:
        return self._database.lease()

    def record_many(self, records: Sequence[Record]) -> None:
        for more in reversed(range(_ATTEMPTS)):
            try:
                self._store(records)
            except FalseCorruptionError as error:
                if not more:  # before, another process may have mended it just now
                    raise RecordRejectedError(f"a record cannot be stored: {error}") from error
            except AnalyticsUnavailableError as error:
                if not more or not (is_conflict(error) or isinstance(error, FileReplacedError)):
                    raise
            else:
                return

    def _store(self, records: Sequence[Record]) -> None:
        if all(type(record) is ToolInvocation for record in records) and self._database.append(
            lambda connection: storing.store(connection, records, self._names)
        ):
            return
        with self._database.writing() as connection:
            storing.store(connection, records, self._names)

    def _to_id(self, id_: UUID) -> UUID | bytes:
        return id_ if self._is_postgresql else id_.bytes

    def _find(self, table: str, query: str, *values: Any) -> Sequence[Any]:
        with self._database.reading(seconds=None) as connection:
            return connection.exec_driver_sql(self._own(query), values).all()

    @contextmanager
    def _changing(self) -> Iterator[Execute]:
        with self._database.writing() as connection:
            yield lambda statement, values: connection.exec_driver_sql(self._own(statement), tuple(values))

    def _own(self, statement: str) -> str:
        """Return a statement with the driver's own placeholders."""
        return statement.replace("?", "%s") if self._is_postgresql else statement
