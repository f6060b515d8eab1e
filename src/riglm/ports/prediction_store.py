"""Storage of overrides, changed settings, warm sets, tool catalogs and tool pins."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from riglm.domain.policy import Override
from riglm.domain.tool import StoredToolCatalog
from riglm.domain.tool_pin import ToolPin
from riglm.domain.usage import MAX_USAGE_SESSIONS, SessionUse, WarmSet, WarmSetKey


@runtime_checkable
class OverridesPort(Protocol):
    """Stores overrides for all processes. Methods block and raise `AnalyticsUnavailableError` on failure."""

    @abstractmethod
    def put_override(self, override: Override) -> None:
        """Store an override, in place of the one with its id, and remove those that had expired when it was made."""

    @abstractmethod
    def list_overrides(self) -> Sequence[Override]:
        """All overrides, expired ones perhaps among them, in the order in which they were made."""

    @abstractmethod
    def delete_override(self, override_id: UUID) -> bool:
        """Remove an override; False when there is none with this id."""


@runtime_checkable
class SettingChangesPort(Protocol):
    """Stores settings that were changed at run time, for all processes: the JSON value of each `section.key`.

    Methods block and raise `AnalyticsUnavailableError` on failure.
    """

    @abstractmethod
    def list_setting_changes(self) -> Mapping[str, Any]:
        """Return all changed settings, by key."""

    @abstractmethod
    def put_setting_changes(self, changes: Mapping[str, Any]) -> None:
        """Store these settings, all or none; others stay."""

    @abstractmethod
    def delete_setting_changes(self, keys: Sequence[str]) -> None:
        """Remove these settings, all or none; keys that are not stored are ignored."""


@runtime_checkable
class WarmSetsPort(Protocol):
    """Stores warm sets, so that all processes agree on them and restarts do not change them.

    Methods block; a failure raises `AnalyticsUnavailableError`.
    """

    @abstractmethod
    def get_warm_set(self, key: WarmSetKey) -> WarmSet | None:
        """Return the warm set of a principal, client, profile and project, None if there is none."""

    @abstractmethod
    def put_warm_set(self, warm_set: WarmSet, replaces: float | None) -> WarmSet:
        """Store a warm set in place of the one created at `replaces`, and return the one that is stored.

        If another process has stored one in the meantime, that one stays. Warm sets created more than
        `warm_set.KEPT_SECONDS` before the given one are removed.
        """

    @abstractmethod
    def forget_warm_sets(self) -> None:
        """Remove all warm sets: the next session makes a new one from what is recorded by then."""

    @abstractmethod
    def list_session_uses(
        self, principal: str | None = None, limit: int = MAX_USAGE_SESSIONS, *, profile: str | None = None
    ) -> Sequence[SessionUse]:
        """Return the latest sessions with a successful call of an upstream tool, newest first.

        Without a principal they are those of all, without a profile those in all. Failed calls and calls of meta-tools
        do not count.
        """


@runtime_checkable
class ToolCatalogsPort(Protocol):
    """Gives the tool catalogs that `AnalyticsPort.record_many` stored.

    Methods block; a failure arrives as `AnalyticsUnavailableError`.
    """

    @abstractmethod
    def list_tool_catalogs(self, fingerprints: Sequence[str]) -> Sequence[StoredToolCatalog]:
        """Return the latest catalogs with these fingerprints, at most one for each variant, in any order."""


@runtime_checkable
class ToolPinsPort(Protocol):
    """Gives and approves the tool pins that `AnalyticsPort.record_many` stored.

    Methods block; a failure arrives as `AnalyticsUnavailableError`.
    """

    @abstractmethod
    def list_tool_pins(self, servers: Sequence[str] | None = None) -> Sequence[ToolPin]:
        """Return the pins of these servers, or of all, by server and name."""

    @abstractmethod
    def approve_tools(self, approved: Sequence[ToolPin]) -> None:
        """Take the `digest` of each pin as approved; other fields count only for tools that have no pin yet.

        The approved definition is the one that was listed, if its digest is equal.
        """
