"""A SQL database looked at by people."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from riglm.adapters.analytics import overview, queries
from riglm.adapters.analytics.database import Database
from riglm.domain.cooccurrence import ToolCooccurrence
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ToolInvocation
from riglm.ports.overview import OverviewPort, SessionKey, SessionSummary, ToolStatistics, Usage

_MOST_SIZES: Final = 100_000


class SqlOverview(OverviewPort):
    """What people ask of a SQL database; part of `SqlAnalytics`. A statement takes no longer than a record may."""

    _database: Database

    def __init__(self) -> None:
        self._sizes: dict[overview.RawId, int] = {}

    def sessions_before(
        self, key: SessionKey | None, limit: int, *, active_only: bool = False
    ) -> Sequence[SessionSummary]:
        """The latest sessions whose place is before `key`, newest first."""
        with self._database.reading(seconds=None) as connection:
            return overview.sessions_before(connection, key, limit, active_only=active_only)

    def session_of(self, session_id: UUID) -> SessionSummary | None:
        """The session with this id."""
        with self._database.reading(seconds=None) as connection:
            return overview.session_of(connection, session_id)

    def count_sessions(self, since: float = 0.0) -> tuple[int, int]:
        """How many sessions have no end, and how many started since the given time."""
        with self._database.reading(seconds=None) as connection:
            return overview.count_sessions(connection, since)

    def latest_invocations(self, session_id: UUID, most: int) -> Sequence[ToolInvocation]:
        """The latest of one session's invocations, in order."""
        with self._database.reading(seconds=None) as connection:
            return overview.latest_invocations(connection, session_id, most)

    def latest_exposures(self, session_id: UUID, most: int) -> Sequence[Exposure]:
        """The latest of one session's exposures, in the order of their time."""
        with self._database.reading(seconds=None) as connection:
            return overview.latest_exposures(connection, session_id, most)

    def tools_known(self, since: float = 0.0) -> Sequence[ToolStatistics]:
        """Every tool used since the given time, shown in a list or hidden from one, most used first, then by name."""
        with self._database.reading(seconds=None) as connection:
            return overview.tools_known(connection, since)

    def tool_totals(self, tool: str, since: float = 0.0) -> ToolStatistics | None:
        """Return how a tool was used since the given time, for any upstream; None if it was not used."""
        with self._database.reading(seconds=None) as connection:
            return queries.tool_totals(connection, tool, since)

    def usage(self, since: float, until: float, spans: int = 1, tool: str | None = None) -> Sequence[Usage]:
        """Return the counts from `since` until just before `until`, in `spans` spans of equal length."""
        if len(self._sizes) > _MOST_SIZES:
            self._sizes.clear()
        with self._database.reading(seconds=None) as connection:
            return overview.usage(connection, since, until, spans, tool, self._sizes)

    def top_cooccurrences(self, most_tools: int) -> Sequence[ToolCooccurrence]:
        """Return the pairs among the tools of the most frequent pairs, most frequent first, then by name."""
        with self._database.reading(seconds=None) as connection:
            return overview.top_cooccurrences(connection, most_tools)
