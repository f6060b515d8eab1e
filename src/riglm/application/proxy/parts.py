"""What the stages and the connections work with."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riglm.application.owners import ToolOwners
from riglm.application.proxy.catalogs import CatalogReader, ListedTools, StoredCatalogs
from riglm.application.sessions.registry import SessionRegistry
from riglm.application.tracking.tracking_service import TrackingService
from riglm.application.trust import PinnedTools
from riglm.domain.jsonrpc import Raw
from riglm.ports.telemetry import MeterPort, TracerPort

if TYPE_CHECKING:
    from riglm.application.filtering.always_listed import AlwaysListed
    from riglm.application.filtering.filtering_service import FilteringService
    from riglm.application.filtering.meta_tools import MetaTools
    from riglm.application.proxy.list_changes import ListChanges
    from riglm.application.session_sharing.session_sharing_service import SessionSharingService


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyParts:
    """The parts of a riglm process that its requests pass.

    `grace` are the seconds that a client waits for the slowest of several servers before it gets what the others have,
    `longest_list` those for the complete list if it ignores list-changed notifications. Tools are not filtered if
    `filtering` is None; `meta_tools` and `list_changes` are None then as well. `always` is the tool that is in all
    lists, if there is one. `meter` and `tracer` are None without metrics and traces, and `sharing` if there is one
    process.
    """

    tracking: TrackingService
    sessions: SessionRegistry
    pins: PinnedTools = field(default_factory=lambda: PinnedTools({}))
    listed: ListedTools = field(default_factory=ListedTools)
    catalogs: StoredCatalogs = field(default_factory=StoredCatalogs)
    reader: CatalogReader = field(default_factory=CatalogReader)
    owners: ToolOwners = field(default_factory=ToolOwners)
    grace: float = 0.8
    longest_list: float = 30.0
    filtering: "FilteringService | None" = None
    meta_tools: "MetaTools | None" = None
    always: "AlwaysListed | None" = None
    list_changes: "ListChanges | None" = None
    meter: MeterPort | None = None
    tracer: TracerPort | None = None
    sharing: "SessionSharingService | None" = None

    def definition(self, name: str) -> Raw | None:
        """Return the raw definition of a tool by the name that clients use; None if it is not known."""
        server, own_name = self.owners.of(name)
        tool = self.listed.of(server).by_name.get(own_name)
        return tool.raw if tool else self.catalogs.definition(server, own_name)
