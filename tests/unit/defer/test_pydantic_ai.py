"""A pydantic-ai agent that gets the selected tools at once and finds the others by the session's search."""

from typing import Any

from riglm import ToolSelector

HABIT = "send_mail"
RARE = ("rotate_keys", "archive_ledger", "paint_fence", "water_plants")


def a_tool(name: str):
    def tool(about: str) -> str:
        return f"{name} is done"

    tool.__name__ = name
    tool.__doc__ = f"Do {name.replace('_', ' ')}."
    return tool


TOOLS = [a_tool(name) for name in (HABIT, *(f"do_{number}" for number in range(30)), *RARE)]


def scripted(shown: list[list[str]], calls: list[Any]) -> Any:
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    def model(messages, info):
        shown.append([tool.name for tool in info.function_tools if not tool.defer_loading])
        made = len(shown) - 1
        return ModelResponse(parts=[calls[made] if made < len(calls) else TextPart("all is done")])

    return FunctionModel(model)


async def test_the_model_is_given_the_selection_and_finds_the_rest():
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import ToolSearch
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.toolsets import FunctionToolset

    from riglm.defer.pydantic_ai import DeferredToolset, search_strategy

    async with ToolSelector(max_tools=3, embedder="static") as selector:
        for _ in range(4):
            with selector.session() as session:
                shown: list[list[str]] = []
                agent = Agent(
                    scripted(shown, [ToolCallPart(HABIT, {"about": "it"})]),
                    toolsets=[DeferredToolset(FunctionToolset(TOOLS), session)],
                    capabilities=[ToolSearch(strategy=search_strategy(session))],
                )
                await agent.run("send mail to Anna")
        assert HABIT in shown[0]
        hidden = next(name for name in RARE if name not in shown[0])
        assert len(shown[0]) <= 4
        with selector.session() as session:
            found: list[list[str]] = []
            calls = [
                ToolCallPart("search_tools", {"queries": [hidden.replace("_", " ")]}),
                ToolCallPart(hidden, {"about": "it"}),
            ]
            agent = Agent(
                scripted(found, calls),
                toolsets=[DeferredToolset(FunctionToolset(TOOLS), session)],
                capabilities=[ToolSearch(strategy=search_strategy(session))],
            )
            result = await agent.run("send mail to Anna")
            assert hidden not in found[0]
            assert f"{hidden} is done" in str(result.all_messages())
            reasons = (await session.aselect()).reasons
            assert reasons[hidden].why == "used in this session"
