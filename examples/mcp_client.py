"""An agent's loop over the client of the MCP SDK: for each step, the model reads the tools for now.

    python examples/mcp_client.py "find out who owns the file" npx -y @modelcontextprotocol/server-filesystem .

In the place of `likeliest` stands your model.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp import Client, StdioServerParameters, Tool

from riglm import Selection, ToolSelector, ToolSession


@dataclass(frozen=True)
class Call:
    """What a model asks for."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


Model = Callable[[str, Sequence[str], Selection[Tool]], Awaitable[Call | None]]
"""Given the task, what happened so far and the tools for now, says which one to call; None at the end."""


async def work(task: str, client: Client, model: Model, session: ToolSession[Tool]) -> list[str]:
    """Let the model call tools until it has nothing more to call; what they answered."""
    tools = (await client.list_tools()).tools
    answers: list[str] = []
    while True:
        selection = await session.aselect(task, tools=tools)
        call = await model(task, answers, selection)
        if call is None:
            return answers
        result = await client.call_tool(call.tool, call.arguments)
        session.used(call.tool, failed=bool(result.is_error))
        answers.append("".join(getattr(part, "text", "") for part in result.content))


async def likeliest(task: str, answers: Sequence[str], selection: Selection[Tool]) -> Call | None:
    """A stand-in for a model: calls the likeliest tool, once."""
    best = min(selection.names, key=lambda name: selection.reasons[name].rank or sys.maxsize)
    return None if answers else Call(best)


async def main(task: str, command: Sequence[str]) -> None:
    """Work at a task with the tools of one server."""
    server = StdioServerParameters(command=command[0], args=list(command[1:]))
    selector = ToolSelector[Tool](max_tools=8)
    async with selector, Client(server) as client:
        with selector.session() as session:
            print(await work(task, client, likeliest, session))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
