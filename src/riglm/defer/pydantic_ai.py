"""pydantic-ai: a toolset that defers what a session does not select, and the session's search for its `ToolSearch`."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_ai import ApprovalRequired, CallDeferred, RunContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

from riglm.application.selector.session import ToolSession
from riglm.defer import record_call

_MAX_FOUND: Final = 10
_MAX_LOADED: Final = 100
"""Tools that a search may find before those that are deferred."""

SearchStrategy = Callable[[RunContext[Any], Sequence[str], Sequence[ToolDefinition]], Awaitable[Sequence[str]]]


@dataclass
class DeferredToolset(WrapperToolset[Any]):
    """Any toolset, of which the model gets the selected tools at once and finds the others by `ToolSearch`.

    It learns from the calls.
    """

    session: ToolSession[ToolsetTool[Any]]

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """All tools; `defer_loading` is set on those that are not selected."""
        tools = await super().get_tools(ctx)
        selection = await self.session.aselect(_text(ctx.prompt), tools=tools.values())
        return {
            name: tool if name in selection else replace(tool, tool_def=replace(tool.tool_def, defer_loading=True))
            for name, tool in tools.items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool, and learn from it."""
        with record_call(self.session, name, passing=(CallDeferred, ApprovalRequired)):
            return await super().call_tool(name, tool_args, ctx, tool)


def search_strategy(session: ToolSession[Any]) -> SearchStrategy:
    """Return the strategy for `ToolSearch(strategy=...)` that searches among a session's tools."""

    async def search(_: RunContext[Any], queries: Sequence[str], tools: Sequence[ToolDefinition]) -> Sequence[str]:
        deferred = {tool.name for tool in tools}
        found: dict[str, None] = {}
        for query in queries:
            result = await session.asearch(query, limit=_MAX_LOADED + len(deferred))
            names = [each.name for each in result if each.name in deferred]
            found |= dict.fromkeys(names[:_MAX_FOUND])
        return list(found)

    return search


def _text(prompt: object) -> str:
    """The texts of a prompt, without images and other content."""
    parts = prompt if isinstance(prompt, list | tuple) else [prompt]
    return "\n".join(part for part in parts if isinstance(part, str))
