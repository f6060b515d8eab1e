"""A gateway behind riglm, in which overrides switch tools on and off."""

from abc import abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from uuid import UUID

from riglm.domain.jsonrpc import Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSwitch:
    """The status that a tool of the gateway is to have because of an override.

    `tool` is the name under which the gateway lists the tool, `definition` the raw JSON of its definition, None if the
    tool has not been listed yet.
    """

    override_id: UUID
    tool: str
    is_active: bool
    definition: Raw | None = None


@runtime_checkable
class GatewayPort(Protocol):
    """The tools of one gateway. All methods block."""

    @abstractmethod
    def update(self, switches: Sequence[ToolSwitch], in_force: AbstractSet[UUID]) -> bool:
        """Set the status of tools, each once per override, so that later changes in the gateway stay.

        Tools that were set for an override that is no longer `in_force` get their previous status again, unless they
        were changed in the gateway since.

        Returns:
            True if what the gateway lists changed since the previous update, also by this one.

        Raises:
            RiglmError: the gateway cannot be reached, or refuses. What is missing is done by the next update.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave further updates to other processes."""
