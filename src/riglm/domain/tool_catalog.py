"""What an upstream server offered when it was last asked, kept so that the next first list need not wait for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw

MAX_CATALOG_BYTES: Final = 1 << 20
"""Maximum size of a stored catalog. A larger one is not stored."""

KEPT_SECONDS: Final = 180 * 86_400.0
"""Seconds after which a stored catalog that no process has refreshed is removed."""


@dataclass(frozen=True, kw_only=True)
class ToolCatalog:
    """The tools of one upstream server as it listed them, and what it declared about itself.

    `fingerprint` is a keyed hash of the server's name and of how it is started or reached. `variant` tells catalogs of
    one server apart: by protocol era and, since servers may go by it, by the capabilities of the client. `capabilities`
    is the raw JSON object that the server declared, `tools` the raw JSON array of its tools; each is empty while it is
    not known. `updated_at` is in seconds since the epoch.
    """

    fingerprint: str
    variant: str
    server: str
    capabilities: bytes
    instructions: str
    tools: bytes
    updated_at: float

    @cached_property
    def entries(self) -> Sequence[Raw]:
        """The raw tools."""
        return jsonrpc.elements(self.tools)

    @property
    def size_bytes(self) -> int:
        """About the size in the store."""
        return len(self.tools) + len(self.capabilities) + len(self.instructions)
