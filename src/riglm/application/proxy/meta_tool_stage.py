"""The stage that answers calls of riglm's tools, or redirects them to the tool that `call_tool` names."""

import time

from riglm.application.proxy.call_stage import CallRecorder
from riglm.application.proxy.parts import ProxyParts
from riglm.application.proxy.request import CALL, Request
from riglm.application.proxy.stage import Outcome, Stage
from riglm.application.tool_lists.list_writer import CALL_TOOL
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message


class MetaToolStage(Stage):
    """Answers calls of meta-tools, which run in a task."""

    methods = frozenset({CALL})
    fails_closed = True

    def __init__(self, parts: ProxyParts) -> None:
        self._filtering = parts.filtering
        self._meta_tools = parts.meta_tools
        self._tracking = parts.tracking
        self._record = CallRecorder(parts)

    def before(self, request: Request) -> Outcome:
        meta_tools, tool = self._meta_tools, request.tool
        if meta_tools is None or not tool or tool not in meta_tools.names or not meta_tools.owns(request.session, tool):
            return None
        return self._run(request, tool)

    async def _run(self, request: Request, tool: str) -> Message | None:
        meta_tools, filtering, session = self._meta_tools, self._filtering, request.session
        if meta_tools is None or filtering is None:
            return None
        started = time.time()
        if meta_tools.is_about_lists(tool) and (tool != CALL_TOOL or filtering.state(session).view is None):
            catalog = await request.upstreams.whole_catalog(request)
            if catalog is not None:
                filtering.know(session, catalog)
            if not meta_tools.owns(session, tool):
                return None  # now that the list is known, it is a server's tool
        result = await meta_tools.run(session, tool, bytes(request.params.arguments) or b"{}")
        if result.forward is not None:
            request.retarget(*result.forward)
            return None
        if result.selection is not None:
            self._tracking.exposed(session, result.selection)
        if result.list_changed:
            request.era.announce_tools(request)
        reply = jsonrpc.result(request.id, request.era.complete(result.result))
        self._record.answered(request, tool, reply, started)
        return reply
