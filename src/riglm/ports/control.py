"""What the control API asks of riglm."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from riglm.domain.control import ConfigurationUpdate, OverrideRequest, RedactedConfiguration
from riglm.domain.policy import Override
from riglm.domain.schemas.control_api import (
    Bucket,
    CooccurrenceMap,
    Health,
    Page,
    Readiness,
    SessionClusters,
    SessionDetail,
    SessionEntry,
    SessionPrediction,
    Summary,
    ToolChangeEntry,
    ToolChanges,
    ToolDetail,
    ToolEntry,
)


@runtime_checkable
class LiveConfigurationPort(Protocol):
    """The configuration in force, which can be changed while riglm runs; called on the proxy's event loop."""

    @abstractmethod
    def shown(self) -> RedactedConfiguration:
        """The configuration with masks in the place of secrets."""

    @abstractmethod
    async def put(
        self, document: Mapping[str, Any], *, expected_version: int | None = None, persist: bool = False
    ) -> ConfigurationUpdate:
        """Change what `document` names, whole or not at all; with `persist`, in the file as well.

        Raises:
            Invalid: the whole would not be valid, or a key is read at the start only and is not to be written.
            Forbidden: a key that cannot be changed this way.
            Conflict: `expected_version` is not the one in force, or there is no file that can be written.
        """


@runtime_checkable
class ControlPort(Protocol):
    """Queries a running riglm, and changes it.

    Called on the event loop of the control API, which is not the proxy's. Every answer comes within some seconds.
    `limit` lies between 1 and 1,000; a `cursor` is a `next_cursor` of the same question.

    Raises:
        Invalid: an argument is not usable.
        NotFoundError: what was named is not there, or a cursor leads nowhere.
        ControlUnavailableError: the store is unavailable, or the answer was not ready in time.
    """

    @abstractmethod
    async def health(self) -> Health:
        """How riglm is; does not wait for the store."""

    @abstractmethod
    async def readiness(self) -> Readiness:
        """Whether clients can be served as they should be."""

    @abstractmethod
    async def configuration(self) -> RedactedConfiguration:
        """The configuration in force."""

    @abstractmethod
    async def put_configuration(
        self, document: Mapping[str, Any], *, expected_version: int | None = None, persist: bool = False
    ) -> ConfigurationUpdate:
        """Change the configuration, as at `LiveConfigurationPort.put`."""

    @abstractmethod
    async def sessions(
        self, *, active_only: bool = False, limit: int = 100, cursor: str | None = None
    ) -> Page[SessionEntry]:
        """Sessions, newest first; going on from page to page skips and repeats none."""

    @abstractmethod
    async def session(self, session_id: UUID) -> SessionDetail:
        """One session."""

    @abstractmethod
    async def prediction(self, session_id: UUID) -> SessionPrediction:
        """What a session's next list would be, and why; asking changes nothing."""

    @abstractmethod
    async def tools(
        self, *, unused_only: bool = False, since: float = 0.0, limit: int = 100, cursor: str | None = None
    ) -> Page[ToolEntry]:
        """Every tool that was shown or used since then, or is listed now: most used first, then by name."""

    @abstractmethod
    async def tool(self, name: str, *, since: float = 0.0) -> ToolDetail:
        """One tool, over all servers that had it."""

    @abstractmethod
    async def tool_changes(self) -> ToolChanges:
        """The tools that are not as they were approved."""

    @abstractmethod
    async def approve_tool(self, server: str, tool: str, digest: str) -> ToolChangeEntry:
        """Approve the definition of a tool that has this digest.

        Raises:
            Conflict: the server lists a different definition by now.
        """

    @abstractmethod
    async def put_override(self, override_request: OverrideRequest) -> Override:
        """Make an override, which counts for lists and calls when this returns."""

    @abstractmethod
    async def overrides(self, *, limit: int = 100, cursor: str | None = None) -> Page[Override]:
        """The overrides that have not expired, the latest first."""

    @abstractmethod
    async def override(self, override_id: UUID) -> Override:
        """One override."""

    @abstractmethod
    async def delete_override(self, override_id: UUID) -> None:
        """Remove an override, which counts no longer when this returns."""

    @abstractmethod
    async def embedder(self) -> Mapping[str, Any]:
        """The capability signal, as `index_status` gives it."""

    @abstractmethod
    async def summary(self, *, since: float = 0.0) -> Summary:
        """All at a glance."""

    @abstractmethod
    async def series(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        buckets: int = 60,
        sessions_since: float | None = None,
    ) -> tuple[Bucket, ...]:
        """The counts over time, oldest first; by default of the 24 hours until now.

        Sessions count that started since `sessions_since`, by default since the begin.
        There are no buckets where the end is not after the begin.
        """

    @abstractmethod
    async def cooccurrence(self, *, limit: int = 30) -> CooccurrenceMap:
        """The `limit` tools that are used together most, and their pairs."""

    @abstractmethod
    async def session_clusters(self, *, limit: int = 20) -> SessionClusters:
        """The `limit` most frequent kinds of work."""
