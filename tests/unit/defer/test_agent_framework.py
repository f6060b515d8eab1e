"""Agents of Microsoft's agent-framework that get the selected tools, and find the others in the same run."""

from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
    tool,
)

from riglm import ToolSelector
from riglm.defer.agent_framework import LearnedTools

HABIT = "send_mail"
NAMES = [*(f"do_{number}" for number in range(30)), HABIT]
TASK = "prepare the party of the team"


def a_function(name: str):
    def function(about: str) -> str:
        if about == "fail":
            raise ValueError("it failed")
        return f"{name} is done"

    return function


TOOLS: list[FunctionTool] = [
    tool(a_function(name), name=name, description=f"Do {name.replace('_', ' ')}.") for name in NAMES
]


class Scripted(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """Makes calls one after the other, and then ends."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        super().__init__()
        self.calls = list(calls)
        self.loaded: list[list[str]] = []
        self.results: list[str] = []

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
        self.loaded.append([each.name for each in options.get("tools") or []])
        self.results = [
            str(part.result or part.exception)
            for each in messages
            for part in each.contents
            if part.type == "function_result"
        ]

        async def answer() -> ChatResponse:
            content = Content.from_text("all is done")
            if self.calls:
                name, arguments = self.calls.pop(0)
                content = Content.from_function_call(name, name, arguments=arguments)
            return ChatResponse(messages=[Message("assistant", [content])])

        return answer()


async def run(session: Any, *calls: tuple[str, dict[str, Any]]) -> Scripted:
    model = Scripted(*calls)
    result = await Agent(model, context_providers=[LearnedTools(session, TOOLS)]).run(TASK)
    assert result.text == "all is done"
    return model


async def test_the_model_finds_a_tool_and_is_given_it_in_later_sessions():
    loaded: list[list[str]] = []
    async with ToolSelector(max_tools=3, embedder="static") as selector:
        for _ in range(4):
            with selector.session() as session:
                model = await run(session, ("find_tools", {"query": "send mail"}), (HABIT, {"about": "it"}))
                assert HABIT in model.loaded[1]
                assert model.results[-1] == f"{HABIT} is done"
                loaded.append(model.loaded[0])
    assert HABIT not in loaded[0]
    assert {HABIT, "find_tools"} <= set(loaded[-1])
    assert {len(names) for names in loaded} == {4}
