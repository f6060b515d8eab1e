"""Where overrides are kept."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from riglm.domain.override import Override


class OverridesPort(Protocol):
    """Keeps overrides for all processes that share it. Methods block; a failure arrives as `AnalyticsUnavailable`."""

    @abstractmethod
    def put_override(self, override: Override) -> None:
        """Store an override, in place of the one with its id, and remove those that had expired when it was made."""

    @abstractmethod
    def list_overrides(self) -> Sequence[Override]:
        """All overrides, expired ones perhaps among them, in the order in which they were made."""

    @abstractmethod
    def delete_override(self, override_id: UUID) -> bool:
        """Remove an override; False when there is none with this id."""
