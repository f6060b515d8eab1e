"""A SQL database looked after."""

from collections.abc import Iterator, Sequence

from riglm.adapters.analytics import compacting, exporting, forgetting, purging
from riglm.adapters.analytics.database import Database
from riglm.domain.forgetting import Forgotten
from riglm.domain.retention import Expiry, Removed
from riglm.ports.maintenance import ROWS_AT_ONCE, Kind, MaintenancePort, Row


class SqlMaintenance(MaintenancePort):
    """What is done to a SQL database from time to time; part of `SqlAnalytics`."""

    _database: Database
    _names: forgetting.Names

    def expired(self, expiry: Expiry) -> Removed:
        """How many records are too old; nothing is removed."""
        with self._database.reading() as connection:
            return purging.expired(connection, expiry)

    def purge(self, expiry: Expiry, at_once: int = ROWS_AT_ONCE) -> Iterator[Removed]:
        """Remove what is too old, about `at_once` rows in each step."""
        return purging.purge(self._database, expiry, at_once, self._names)

    def known_of(self, forgotten: Forgotten) -> Removed:
        """Return the number of records of a subject, as far as they are counted by session; nothing is deleted."""
        with self._database.reading() as connection:
            return forgetting.known_of(connection, forgotten, self._names)

    def forget(self, forgotten: Forgotten, at_once: int = ROWS_AT_ONCE) -> Iterator[Removed]:
        """Erase a subject, in steps, and refuse its later records."""
        return forgetting.forget(self._database, forgotten, at_once, self._names)

    def finish_forgetting(self, at_once: int = ROWS_AT_ONCE) -> Iterator[Removed]:
        """Remove what is left of all who were forgotten, in steps."""
        return forgetting.finish_forgetting(self._database, at_once, self._names)

    def forgotten_sessions(self, since: float = 0.0) -> Sequence[Forgotten]:
        """The sessions that were to be forgotten at this time or later."""
        with self._database.reading() as connection:
            return forgetting.forgotten_sessions(connection, since)

    def forgettings(self, since: float = 0.0) -> float:
        """Return a number that grows whenever a subject is erased after that time; 0 without any."""
        with self._database.reading() as connection:
            return forgetting.forgettings(connection, since)

    def count_rows(self, kind: Kind, since: float = 0.0) -> int:
        """How many records of this kind there are from the given time on."""
        with self._database.reading() as connection:
            return exporting.count_rows(connection, kind, since)

    def export(self, kind: Kind, since: float = 0.0, at_once: int = 1000) -> Iterator[Sequence[Row]]:
        """All records of this kind from the given time on, oldest first, at most `at_once` together."""
        return exporting.export(self._database, kind, since, at_once)

    def size_bytes(self) -> int:
        """How much space the database takes."""
        with self._database.reading() as connection:
            return compacting.size_bytes(connection)

    def compact(self, *, whole: bool = False, reserve: float = 0.0) -> Iterator[str]:
        """Give space back, in steps, each with what was done."""
        return compacting.compact(self._database, whole=whole, reserve=reserve)
