"""A LangGraph agent: the node that asks the model binds the tools for now, the node that runs tools has them all.

    python examples/langgraph_agent.py openai:gpt-5-mini "Invite Anna to lunch tomorrow, and book a table for two."

The model's name is one of `langchain.chat_models.init_chat_model`: install `langchain` and the provider's package.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from office import OFFICE

from riglm import ToolSelector, ToolSession

TOOLS: Sequence[BaseTool] = [tool(function) for function in OFFICE]


def build(model: BaseChatModel, session: ToolSession[BaseTool]) -> Any:
    """The graph of one agent."""

    async def ask(state: MessagesState) -> dict[str, Any]:
        task = next(message.text for message in state["messages"] if isinstance(message, HumanMessage))
        selection = await session.aselect(task)
        return {"messages": [await model.bind_tools(selection.tools).ainvoke(state["messages"])]}

    run_tools = ToolNode(TOOLS)

    async def run(state: MessagesState) -> Any:
        done = await run_tools.ainvoke(state)
        for message in done["messages"]:
            if isinstance(message, ToolMessage) and message.name:
                session.used(message.name, failed=message.status == "error")
        return done

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", run)
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    return graph.compile()


async def work(task: str, model: BaseChatModel, session: ToolSession[BaseTool]) -> str:
    """Work at a task with the office's tools; what the model says at the end."""
    done = await build(model, session).ainvoke({"messages": [HumanMessage(task)]})
    return str(done["messages"][-1].text)


async def main(model: str, task: str) -> None:
    """Work at one task, and remember what was used in `agent.db`."""
    from langchain.chat_models import init_chat_model

    async with ToolSelector(TOOLS, max_tools=8, store="agent.db") as selector:
        with selector.session() as session:
            print(await work(task, init_chat_model(model), session))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
