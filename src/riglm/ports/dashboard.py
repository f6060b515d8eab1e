"""What people who look at riglm ask of the store, in ways that stay quick while it fills."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from riglm.domain.cooccurrence import Cooccurrence
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ToolInvocation
from riglm.domain.session import Session


class SessionKey(NamedTuple):
    """The place of a session among all: by its start, in seconds since the epoch, and by its id among equals."""

    started_at: float
    id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session as people list it, with how many calls it made and how many of them failed.

    The session's `sequence` is the highest sequence number that is stored. `exposures` counts all of them, `lists`
    those that are no answers, `list_changes` the lists that differ from the one before, `searches` the answers to
    searches.
    """

    session: Session
    invocations: int
    failures: int
    exposures: int
    lists: int = 0
    list_changes: int = 0
    searches: int = 0


@runtime_checkable
class DashboardQueriesPort(Protocol):
    """Questions about all that was recorded, or the latest of it.

    Methods block; a failure arrives as `AnalyticsUnavailableError`.
    """

    @abstractmethod
    def list_sessions(
        self, limit: int = 100, *, active_only: bool = False, before: SessionKey | None = None
    ) -> Sequence[SessionSummary]:
        """Return the latest sessions whose place is before `before`, newest first; with None the latest of all."""

    @abstractmethod
    def find_session(self, session_id: UUID) -> SessionSummary | None:
        """The session with this id."""

    @abstractmethod
    def list_invocations(self, session_id: UUID, limit: int | None = None) -> Sequence[ToolInvocation]:
        """Return the latest of one session's invocations, or all of them, in order."""

    @abstractmethod
    def latest_exposures(self, session_id: UUID, most: int) -> Sequence[Exposure]:
        """The latest of one session's exposures, in the order of their time."""

    @abstractmethod
    def list_top_cooccurrences(self, most_tools: int) -> Sequence[Cooccurrence]:
        """Return the pairs among the tools of the most frequent pairs, most frequent first, then by name."""
