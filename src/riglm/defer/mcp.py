"""MCP SDK: middleware by which a server marks the tools that its clients probably need, and learns from their calls."""

from typing import Any, Final

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from riglm.application.selector.session import ToolSession
from riglm.application.tool_lists.list_writer import ALWAYS_LOAD
from riglm.defer import record_call
from riglm.tool_selector import ToolSelector

_SESSION: Final = "riglm"


class LearnedHints:
    """Gives preload hints to the selected tools of a server: `server.middleware.append(LearnedHints(selector))`.

    `server` is an `MCPServer` or a low-level `Server`. All tools are listed, in the server's order. `selector` is an
    open `ToolSelector` of the server's tools, best with a `store`. Calls on one connection of the handshake era are one
    session; in the modern era each request is one.
    """

    def __init__(self, selector: ToolSelector[Any]) -> None:
        self._selector = selector

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Handle a message: mark the tools of a list, and learn from a call."""
        name = (ctx.params or {}).get("name")
        if ctx.method == "tools/call" and isinstance(name, str):
            with record_call(self._session(ctx), name) as call:
                result = await call_next(ctx)
                if isinstance(result, dict):
                    call.failed = None if result.get("resultType") == "input_required" else bool(result.get("isError"))
            return result
        result = await call_next(ctx)
        if ctx.method == "tools/list" and isinstance(result, dict):
            selection = await self._session(ctx).aselect()
            tools = [_hinted(tool) if tool["name"] in selection else tool for tool in result["tools"]]
            return {**result, "tools": tools}
        return result

    def _session(self, ctx: ServerRequestContext[Any, Any]) -> ToolSession[Any]:
        """The session of a connection, begun with its first request and closed with it."""
        connection = ctx.session._connection  # noqa: SLF001  # the SDK has no public way to the connection of a request
        if _SESSION not in connection.state:
            session = connection.state[_SESSION] = self._selector.session()
            connection.exit_stack.callback(session.close)
        found: ToolSession[Any] = connection.state[_SESSION]
        return found


def _hinted(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "_meta": {**(tool.get("_meta") or {}), ALWAYS_LOAD[-1]: True}}
