"""FastMCP: middleware by which a server marks the tools that its clients probably need, and learns from their calls."""

import contextlib
from collections.abc import Sequence
from typing import Any

from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import Tool, ToolResult
from mcp_types import CallToolRequestParams, ListToolsRequest

from riglm.application.selector.session import ToolSession
from riglm.application.tool_lists.list_writer import ALWAYS_LOAD
from riglm.defer import record_call
from riglm.tool_selector import ToolSelector


class LearnedHints(Middleware):
    """Gives preload hints to the selected tools of a server: `server.add_middleware(LearnedHints(selector))`.

    All tools are listed, in the server's order. `selector` is an open `ToolSelector` of the server's tools, best with a
    `store`. Calls on one connection of the handshake era are one session; in the modern era each request is one.
    """

    def __init__(self, selector: ToolSelector[Tool]) -> None:
        self._selector = selector

    async def on_list_tools(
        self, context: MiddlewareContext[ListToolsRequest], call_next: CallNext[ListToolsRequest, Sequence[Tool]]
    ) -> Sequence[Tool]:
        """List all tools, the selected ones with a preload hint."""
        tools = await call_next(context)
        with self._session(context) as session:
            selection = await session.aselect(tools=tools)
        return [tool.model_copy(update={"meta": _hinted(tool)}) if tool.name in selection else tool for tool in tools]

    async def on_call_tool(
        self, context: MiddlewareContext[CallToolRequestParams], call_next: CallNext[CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        """Call a tool, and learn from it."""
        with self._session(context) as session, record_call(session, context.message.name) as call:
            result = await call_next(context)
            call.failed = bool(result.is_error)
        return result

    def _session(self, context: MiddlewareContext[Any]) -> ToolSession[Tool]:
        key = ""
        if context.fastmcp_context is not None:
            with contextlib.suppress(RuntimeError):  # the server calls a tool itself, on no connection
                key = context.fastmcp_context.session_id
        return self._selector.session(key)


def _hinted(tool: Tool) -> dict[str, Any]:
    return {**(tool.meta or {}), ALWAYS_LOAD[-1]: True}
