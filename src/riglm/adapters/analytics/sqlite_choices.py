"""What people and epochs decided, read and written in the SQLite file of `SqlAnalytics` without SQLAlchemy.

A first list is made from it, and importing SQLAlchemy takes longer than a client should wait for that.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from riglm.adapters.analytics.file_check import connect
from riglm.adapters.analytics.odd_text import original, storable
from riglm.adapters.analytics.store_file import StoreFile
from riglm.domain.errors import AnalyticsUnavailable
from riglm.domain.invocation import OWN_UPSTREAM
from riglm.domain.override import Override, OverrideKind, OverrideScope
from riglm.domain.warm_set import KEPT_SECONDS, WarmSet
from riglm.ports.overrides import OverridesPort
from riglm.ports.warm_sets import HALF_SECONDS, MOST_USES, WarmSetsPort

BUSY_TIMEOUT_MS: Final = 250
"""How long a statement waits for another process that writes: a list waits for it."""

_USE: Final = """
    SELECT tool, sum(1.0 / (1.0 + max(0.0, ?1 - timestamp) / ?2)) FROM (
        SELECT tool, timestamp FROM invocation
        WHERE upstream != ?3 AND success
        AND (?4 IS NULL OR session_id IN (SELECT id FROM session WHERE principal = ?4))
        ORDER BY timestamp DESC LIMIT ?5
    ) GROUP BY tool
"""


class SqliteChoices(OverridesPort, WarmSetsPort):
    """Opens the file for each question, and makes none: before `SqlAnalytics` made it, nothing was decided."""

    def __init__(self, file: Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        self._file = file
        self._busy_timeout_ms = busy_timeout_ms

    def put_override(self, override: Override) -> None:
        """Store an override, in place of the one with its id, and remove those that had expired when it was made."""
        with self._writing() as connection:
            connection.execute(
                "DELETE FROM override WHERE expires_at <= ? OR id = ?", (override.created_at, override.id.bytes)
            )
            connection.execute(
                "INSERT INTO override (id, kind, tool, scope, key, created_at, expires_at, reason)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    override.id.bytes,
                    override.kind.value,
                    storable(override.tool),
                    override.scope.value,
                    storable(override.key),
                    float(override.created_at),
                    override.expires_at,
                    storable(override.reason),
                ),
            )

    def list_overrides(self) -> Sequence[Override]:
        """All overrides in the order in which they were made."""
        found = self._read(
            "override",
            "SELECT id, kind, tool, scope, key, created_at, expires_at, reason FROM override ORDER BY created_at, id",
        )
        return [
            Override(
                id=UUID(bytes=id_),
                kind=OverrideKind(kind),
                tool=original(tool),
                scope=OverrideScope(scope),
                key=original(key),
                created_at=created_at,
                expires_at=expires_at,
                reason=original(reason),
            )
            for id_, kind, tool, scope, key, created_at, expires_at, reason in found
        ]

    def delete_override(self, override_id: UUID) -> bool:
        """Remove an override; False when there is none with this id."""
        with self._writing() as connection:
            return connection.execute("DELETE FROM override WHERE id = ?", (override_id.bytes,)).rowcount > 0

    def get_warm_set(self, principal: str, profile: str, epoch_start: float) -> WarmSet | None:
        """The warm set of a principal and profile for one epoch, None when there is none yet."""
        found = self._read(
            "warm_set",
            "SELECT tools, predictor, created_at FROM warm_set WHERE principal = ? AND profile = ? AND epoch_start = ?",
            (storable(principal), storable(profile), float(epoch_start)),
        )
        for tools, predictor, created_at in found:
            return WarmSet(
                principal=principal,
                profile=profile,
                epoch_start=epoch_start,
                tools=tuple(json.loads(tools)),
                predictor=original(predictor),
                created_at=created_at,
            )
        return None

    def put_warm_set(self, warm_set: WarmSet) -> WarmSet:
        """Store a warm set unless its epoch has one, and give the one that is stored."""
        with self._writing() as connection:
            connection.execute("DELETE FROM warm_set WHERE created_at < ?", (warm_set.created_at - KEPT_SECONDS,))
            connection.execute(
                "INSERT OR IGNORE INTO warm_set (principal, profile, epoch_start, tools, predictor, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    storable(warm_set.principal),
                    storable(warm_set.profile),
                    float(warm_set.epoch_start),
                    json.dumps(warm_set.tools, separators=(",", ":")),
                    storable(warm_set.predictor),
                    float(warm_set.created_at),
                ),
            )
        return self.get_warm_set(warm_set.principal, warm_set.profile, warm_set.epoch_start) or warm_set

    def forget_warm_sets(self) -> None:
        """Remove all warm sets."""
        with self._writing() as connection:
            connection.execute("DELETE FROM warm_set")

    def recent_use(self, now: float, principal: str | None = None) -> dict[str, float]:
        """How much each tool was used of late, by a principal or by all."""
        given = (now, HALF_SECONDS, OWN_UPSTREAM, principal, MOST_USES)
        return {original(tool): worth for tool, worth in self._read("invocation", _USE, given)}

    def _read(self, table: str, query: str, given: Sequence[object] = ()) -> list[Any]:
        """What a query finds; nothing while there is no such table."""
        if not self._file.exists():
            return []
        with self._opened("ro") as connection:
            known = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
            return connection.execute(query, given).fetchall() if known.fetchone() else []

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        file = StoreFile(self._file)
        with self._opened("rw") as connection:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                yield connection
        if not file.is_in_place:
            raise AnalyticsUnavailable(f"the store {self._file} was replaced meanwhile: try again")

    @contextmanager
    def _opened(self, mode: str) -> Iterator[sqlite3.Connection]:
        """A connection to a file that is there already; every failure arrives as `AnalyticsUnavailable`."""
        try:
            with closing(connect(self._file.resolve(), mode, self._busy_timeout_ms / 1000)) as connection:
                yield connection
        except (sqlite3.Error, OSError, ValueError) as error:
            raise AnalyticsUnavailable(f"the store {self._file} cannot be used: {error}") from error
