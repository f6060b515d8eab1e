"""The examples for agent libraries, each run with a scripted model that calls only what it is shown.

Each test imports its library, for a worker that runs none of them: they take seconds to import.
"""

from mcp import Client
from mcp.server.mcpserver import MCPServer

from tests.examples.conftest import HABIT, TASK


def assert_learned_to_show(shown: list[list[str]]) -> None:
    """Every list was short, and the first one had what such tasks took before."""
    assert all(len(names) <= 9 for names in shown)
    assert set(HABIT) <= set(shown[0])


def assert_used(session) -> None:
    """The session knows of all calls of the habit."""
    reasons = session.select().reasons
    assert {reasons[tool].why for tool in HABIT} == {"used in this session"}


async def test_the_mcp_client_calls_what_the_session_selects_of_the_servers_tools(example, a_selector):
    office, module = example("office"), example("mcp_client")
    server = MCPServer("office")
    for function in office.OFFICE:
        server.add_tool(function)
    shown = []

    async def model(task, answers, selection):
        shown.append(list(selection.names))
        assert all(selection.objects[name].name == name for name in selection.names)
        if len(answers) == len(HABIT):
            return None
        name = HABIT[len(answers)]
        assert name in selection.objects
        return module.Call(name, {"about": task})

    session = a_selector(office.OFFICE).session()
    async with Client(server) as client:
        answers = await module.work(TASK, client, model, session)
    assert answers == [f"{tool} is done: {TASK}" for tool in HABIT]
    assert_learned_to_show(shown)
    assert_used(session)


async def test_the_pydantic_ai_agent_is_shown_the_tools_for_now(example, a_selector):
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    office, module = example("office"), example("pydantic_ai_agent")
    shown = []

    def model(messages, info):
        shown.append([tool.name for tool in info.function_tools])
        if len(shown) > len(HABIT):
            return ModelResponse(parts=[TextPart("all is ready")])
        return ModelResponse(parts=[ToolCallPart(HABIT[len(shown) - 1], {"about": TASK})])

    session = a_selector(office.OFFICE).session()
    assert await module.work(TASK, FunctionModel(model), session) == "all is ready"
    assert_learned_to_show(shown)
    assert_used(session)


async def test_the_langgraph_agent_binds_the_tools_for_now(example, a_selector):
    from langchain_core.messages import AIMessage

    from tests.examples.scripted import ScriptedChat

    module = example("langgraph_agent")
    calls = [
        AIMessage("", tool_calls=[{"name": tool, "args": {"about": TASK}, "id": str(number)}])
        for number, tool in enumerate(HABIT)
    ]
    model = ScriptedChat(messages=iter([*calls, AIMessage("all is ready")]), shown=[])
    session = a_selector(module.TOOLS).session()
    assert await module.work(TASK, model, session) == "all is ready"
    assert_learned_to_show(model.shown)
    assert_used(session)


async def test_the_openai_agent_finds_by_search_what_was_not_selected_for_its_run(example, a_selector):
    from agents import set_tracing_disabled

    from tests.examples.scripted import ScriptedModel

    set_tracing_disabled(True)
    module = example("openai_agents")
    about = f'{{"about": "{TASK}"}}'
    travel = ("find_tools", '{"query": "book a train or a flight"}')
    model = ScriptedModel(*[(tool, about) for tool in HABIT], travel, ("travel_book", about))
    session = a_selector(module.TOOLS).session()
    assert "travel_book" not in session.select(TASK).names
    assert await module.work(TASK, model, session) == "all is ready"
    assert set(HABIT) <= set(model.shown[0])
    assert "travel_book" in model.shown[-1]
    assert len(model.shown[0]) <= 9
    assert_used(session)
