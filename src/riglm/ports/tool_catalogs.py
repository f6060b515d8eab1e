"""Reads the tool catalogs that were recorded."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from riglm.domain.tool_catalog import ToolCatalog


class ToolCatalogsPort(Protocol):
    """Gives the tool catalogs that `AnalyticsPort.record_many` stored.

    Methods block; a failure arrives as `AnalyticsUnavailable`.
    """

    @abstractmethod
    def list_tool_catalogs(self, fingerprints: Sequence[str]) -> Sequence[ToolCatalog]:
        """Return the latest catalogs with these fingerprints, at most one for each variant, in any order."""
