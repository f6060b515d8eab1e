"""A pydantic-ai agent whose model reads, at each step, the tools for now.

python examples/pydantic_ai_agent.py openai:gpt-5-mini "Invite Anna to lunch tomorrow, and book a table for two."
"""

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

from office import OFFICE
from pydantic_ai import Agent, RunContext
from pydantic_ai.models import Model
from pydantic_ai.toolsets import FunctionToolset, ToolsetTool, WrapperToolset

from riglm import ToolSelector, ToolSession


@dataclass
class Selected(WrapperToolset[Any]):
    """Shows of any toolset what a session selects, and tells the session what is called."""

    session: ToolSession[ToolsetTool[Any]]

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools for now."""
        every = await super().get_tools(ctx)
        selection = await self.session.aselect(str(ctx.prompt or ""), tools=every.values())
        return dict(selection.objects)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool, and learn from it."""
        result = await super().call_tool(name, tool_args, ctx, tool)
        self.session.used(name)
        return result


async def work(task: str, model: Model | str, session: ToolSession[ToolsetTool[Any]]) -> str:
    """Work at a task with the office's tools; what the model says at the end."""
    agent = Agent(model, toolsets=[Selected(FunctionToolset(OFFICE), session)])
    return (await agent.run(task)).output


async def main(model: str, task: str) -> None:
    """Work at one task, and remember what was used in `agent.db`."""
    selector = ToolSelector[ToolsetTool[Any]](max_tools=8, store="agent.db")
    async with selector:
        with selector.session() as session:
            print(await work(task, model, session))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
