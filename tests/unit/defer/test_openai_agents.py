"""An agent of the OpenAI Agents SDK that asks the Responses API with deferred tools, answered by a script."""

import json
from typing import Any

import httpx
import pytest

from riglm import ToolSelector

HABIT = "send_mail"
TASK = "prepare the party of the team"


def a_tool(name: str) -> Any:
    from agents import function_tool

    def tool(about: str) -> str:
        return f"{name} is done"

    return function_tool(tool, name_override=name, description_override=f"Do {name.replace('_', ' ')}.")


@pytest.fixture
def tools():
    return [a_tool(name) for name in (*(f"do_{number}" for number in range(30)), HABIT)]


def search(name: str) -> list[dict[str, Any]]:
    state = {"id": "s", "execution": "server", "status": "completed"}
    return [
        {"type": "tool_search_call", "arguments": {"query": "my new task"}, **state},
        {"type": "tool_search_output", "tools": [{"type": "function", "name": name, "parameters": {}}], **state},
    ]


DONE = {
    "type": "message",
    "id": "m",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "all is done", "annotations": []}],
}


def calling(name: str) -> dict[str, Any]:
    return {"type": "function_call", "id": f"f_{name}", "call_id": name, "name": name, "arguments": '{"about": "it"}'}


async def run(session: Any, tools: list[Any]) -> tuple[list[Any], str]:
    """Run an agent whose provider finds and calls a tool. Returns the tools and the input of its two requests."""
    from agents import Agent, OpenAIResponsesModel, RunConfig, Runner
    from openai import AsyncOpenAI

    from riglm.defer.openai_agents import LearningHooks, deferred

    selection = await session.aselect(TASK)
    call = calling(HABIT) if HABIT in selection else {**calling(HABIT), "namespace": HABIT}  # as the provider does
    answers = [[*search(HABIT), call], [DONE]]
    asked: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        fields = {"id": "r", "object": "response", "created_at": 1, "model": "gpt-5.5", "parallel_tool_calls": True}
        return httpx.Response(
            200, json={**fields, "tool_choice": "auto", "tools": [], "output": answers[len(asked) - 1]}
        )

    http_client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    async with AsyncOpenAI(api_key="none", http_client=http_client) as client:
        agent = Agent("office", model=OpenAIResponsesModel("gpt-5.5", client), tools=deferred(tools, selection))
        config = RunConfig(tracing_disabled=True)
        result = await Runner.run(agent, TASK, hooks=LearningHooks(session), run_config=config)
    assert result.final_output == "all is done"
    return asked[0]["tools"], str(asked[1]["input"])


async def test_the_model_finds_a_tool_and_is_given_it_in_later_sessions(tools):
    loaded: list[list[str]] = []
    async with ToolSelector(tools, max_tools=3, embedder="static") as selector:
        for _ in range(4):
            with selector.session() as session:
                given, results = await run(session, tools)
                assert {"type": "tool_search"} in given
                assert len(given) == len(tools) + 1
                assert f"{HABIT} is done" in results
                loaded.append([tool["name"] for tool in given if "name" in tool and not tool.get("defer_loading")])
        found = await selector.session().asearch("my new task")
    assert HABIT not in loaded[0]
    assert HABIT in loaded[-1]
    assert {len(names) for names in loaded} == {3}
    assert next(each.name for each in found) == HABIT


def test_tools_that_openai_runs_stay_in_their_places_and_one_search_is_enough(tools) -> None:
    from agents import FunctionTool, ToolSearchTool, WebSearchTool

    from riglm.defer.openai_agents import deferred

    web, finder = WebSearchTool(), ToolSearchTool()
    placed = deferred([web, *tools[:2]], ["do_1"])
    assert placed[0] is web
    assert [tool.defer_loading for tool in placed[1:3] if isinstance(tool, FunctionTool)] == [True, False]
    assert isinstance(placed[3], ToolSearchTool)
    assert deferred([finder, tools[0]], [])[0] is finder
    assert len(deferred([finder, tools[0]], [])) == 2
