"""The stages of a request, in order: read this first.

`ProxyService.handle` calls `before` of each stage in this order, then sends the request to its server.
`ProxyService.finish` calls `after` of the stages that the request has passed, in reverse, then delivers the reply. The
order is the same in both protocol eras, and in front of one or several servers. A stage whose `is_used` returns False
for the parts of a process is left out.
"""

from typing import Final

from riglm.application.proxy.call_stages import CallStage, MetaToolStage, PermitStage
from riglm.application.proxy.list_stage import ListStage
from riglm.application.proxy.opening_stage import OpeningStage
from riglm.application.proxy.request_stages import (
    EraStage,
    MisreadingStage,
    ResolveStage,
    SessionStage,
    SharedStateStage,
)
from riglm.application.proxy.stage import Stage
from riglm.application.proxy.subscriptions import SubscribeStage
from riglm.application.proxy.tracing_stage import TracingStage

STAGES: Final[tuple[type[Stage], ...]] = (
    TracingStage,  # starts the span of the request, and ends it
    MisreadingStage,  # refuses what a server could take for a denied call
    SharedStateStage,  # reads what other processes know of the session, and publishes what changed
    SessionStage,  # identifies the session
    EraStage,  # refuses modern requests where a server supports only the handshake era
    OpeningStage,  # initialize and server/discover: notes the client, offers what the filter adds
    SubscribeStage,  # subscriptions/listen: lets the filter announce changes
    MetaToolStage,  # tools/call: answers calls of riglm's tools
    ListStage,  # tools/list: writes what the filter shows
    ResolveStage,  # finds the server, or answers what concerns all of several servers
    PermitStage,  # tools/call: denies
    CallStage,  # tools/call: records
)
