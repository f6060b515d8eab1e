"""Usage kept in a SQL database, and the queries of the dashboard."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self
from uuid import UUID

from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.engine import TIMEOUT_SECONDS, is_postgresql
from riglm.adapters.analytics.forgetting import SqlErasure
from riglm.adapters.analytics.maintenance import SqlMaintenance
from riglm.adapters.analytics.prediction_store import Execute, PredictionStatements
from riglm.adapters.analytics.queries import SqlQueries
from riglm.adapters.analytics.storing import SqlRecording
from riglm.ports.analytics import AnalyticsPort


class SqlAnalytics(SqlRecording, SqlQueries, SqlMaintenance, SqlErasure, PredictionStatements, AnalyticsPort):
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
