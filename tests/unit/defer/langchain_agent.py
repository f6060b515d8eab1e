"""A LangChain agent, its tools and its model, apart from the tests: LangChain takes a second to import."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool, ToolException

from riglm.defer.langchain import LearnedToolSearch

HABIT = "send_mail"
TASK = {"messages": [("user", "prepare the party of the team")]}


def a_tool(name: str) -> StructuredTool:
    def tool(about: str) -> str:
        if about == "fail":
            raise ToolException("it failed")
        return f"{name} is done"

    return StructuredTool.from_function(
        tool, name=name, description=f"Do {name.replace('_', ' ')}.", handle_tool_error=True
    )


TOOLS = [a_tool(name) for name in (*(f"do_{number}" for number in range(30)), HABIT)]


class Scripted(GenericFakeChatModel):
    """A model of Anthropic's by name, that answers from a script."""

    loaded: list[list[str]]
    types: list[str]

    def _get_ls_params(self, **_: Any) -> Any:
        return {"ls_provider": "anthropic"}

    def bind_tools(self, tools: Any, **_: Any) -> "Scripted":
        named = [tool for tool in tools if not isinstance(tool, dict)]
        self.loaded.append([tool.name for tool in named if not (tool.extras or {}).get("defer_loading")])
        self.types.extend(tool["type"] for tool in tools if isinstance(tool, dict))
        return self


def calling(name: str, about: str = "it", content: Any = "") -> AIMessage:
    return AIMessage(content, tool_calls=[{"name": name, "args": {"about": about}, "id": name}])


def found_and_called(name: str) -> AIMessage:
    content = [
        {"type": "server_tool_use", "id": "s", "name": "tool_search_tool_bm25", "input": {"query": "my new task"}},
        {
            "type": "tool_search_tool_result",
            "tool_use_id": "s",
            "content": {"tool_references": [{"type": "tool_reference", "tool_name": name}]},
        },
        {"type": "tool_use", "id": name, "name": name, "input": {"about": "it"}},
    ]
    return calling(name, content=content)


async def answer(model: Scripted, session: Any, *, is_async: bool) -> list[str]:
    agent = create_agent(model, TOOLS, middleware=[LearnedToolSearch(session)])
    result = await agent.ainvoke(TASK) if is_async else agent.invoke(TASK)
    return [message.text for message in result["messages"]]
