"""An agent of the OpenAI Agents SDK that starts each run with the tools for its task, and can search for others.

python examples/openai_agents.py gpt-5-mini "Invite Anna to lunch tomorrow, and book a table for two."
"""

import asyncio
import sys
from dataclasses import replace
from typing import Any

from agents import Agent, AgentBase, FunctionTool, Model, RunContextWrapper, RunHooks, Runner, Tool, function_tool
from office import OFFICE

from riglm import ToolSelector, ToolSession

TOOLS = [function_tool(function) for function in OFFICE]
NAMES = {tool.name for tool in TOOLS}


class Learning(RunHooks[Any]):
    """Tells a session what an agent used."""

    def __init__(self, session: ToolSession[FunctionTool]) -> None:
        self._session = session

    async def on_tool_end(self, context: Any, agent: Any, tool: Tool, result: object) -> None:
        """A tool was used."""
        if tool.name in NAMES:
            self._session.used(tool.name)


async def work(task: str, model: Model | str, session: ToolSession[FunctionTool]) -> str:
    """Work at a task with the office's tools; what the model says at the end."""
    selection = await session.aselect(task)
    there = set(selection.names)

    @function_tool
    async def find_tools(query: str) -> list[str]:
        """Find tools for something that none of the others does; they can be called from the next step on."""
        found = await session.asearch(query)
        there.update(each.name for each in found)
        return [each.name for each in found]

    def shown(tool: FunctionTool) -> FunctionTool:
        async def is_enabled(context: RunContextWrapper[Any], agent: AgentBase[Any]) -> bool:
            return tool.name in there

        return replace(tool, is_enabled=is_enabled)

    agent = Agent(name="office", model=model, tools=[*map(shown, TOOLS), find_tools])
    return str((await Runner.run(agent, task, hooks=Learning(session))).final_output)


async def main(model: str, task: str) -> None:
    """Work at one task, and remember what was used in `agent.db`."""
    async with ToolSelector(TOOLS, max_tools=8, store="agent.db") as selector:
        with selector.session() as session:
            print(await work(task, model, session))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
