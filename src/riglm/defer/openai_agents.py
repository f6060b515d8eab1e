"""OpenAI Agents SDK: tools that the Responses API defers unless a session selects them, and hooks that learn."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from agents import Agent, FunctionTool, ModelResponse, RunContextWrapper, RunHooks, Tool, ToolSearchTool

from riglm.application.selector.session import ToolSession
from riglm.defer import Loaded, alearn, loaded_names


def deferred(tools: Iterable[Tool], loaded: Loaded) -> list[Tool]:
    """Return the `tools` of an agent, of which the model gets the selected ones at once and finds the others.

    Args:
        tools: the tools. Those that OpenAI runs stay as they are.
        loaded: a selection, or the names of the tools that the model gets at once. The others have `defer_loading`.
    """
    names = loaded_names(loaded)
    placed: list[Tool] = [
        replace(tool, defer_loading=tool.name not in names) if isinstance(tool, FunctionTool) else tool
        for tool in tools
    ]
    is_deferring = any(isinstance(tool, FunctionTool) and tool.defer_loading for tool in placed)
    has_search = any(isinstance(tool, ToolSearchTool) for tool in placed)
    return [*placed, ToolSearchTool()] if is_deferring and not has_search else placed


class LearningHooks(RunHooks[Any]):
    """Learns from the calls and searches of a run: `Runner.run(agent, task, hooks=LearningHooks(session))`."""

    def __init__(self, session: ToolSession[Any]) -> None:
        self._session = session

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """Learn from the searches that the model made."""
        await alearn(self._session, response.output, calls=False)

    async def on_tool_end(self, context: RunContextWrapper[Any], agent: Any, tool: Tool, result: object) -> None:
        """Learn from a call."""
        if tool.name in self._session:
            self._session.used(tool.name)
