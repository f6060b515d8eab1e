"""Requests that load the selected tools and defer the others, as the providers' own libraries take them."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from riglm import ToolSelector, UnusableToolError, defer

NAMES = [f"{server}__{verb}_{what}" for server in ("git", "mail") for verb in ("read", "send") for what in "ab"]
SCHEMA = {"type": "object", "properties": {"about": {"type": "string"}}}
CLAUDES: list[dict[str, Any]] = [{"name": name, "description": name, "input_schema": SCHEMA} for name in NAMES]
OPENAIS: list[dict[str, Any]] = [
    {"type": "function", "name": name, "description": name, "parameters": SCHEMA, "strict": None} for name in NAMES
]
LOADED = ("git__read_a", "mail__send_b")


def message() -> Any:
    """An answer of Anthropic's library, which takes two seconds to import."""
    from anthropic.types import Message

    return Message.model_validate(MESSAGE)


def response() -> Any:
    """An answer of OpenAI's library."""
    from openai.types.responses import Response

    return Response.model_validate(RESPONSE)


def is_valid(kind: Any, value: object) -> bool:
    """Whether a library's own type takes a value."""
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("search", ["bm25", "regex"])
def test_anthropic_loads_the_selection_and_defers_the_rest(search):
    from anthropic.types import ToolUnionParam

    server_tool = {"type": "web_search_20250305", "name": "web_search"}
    made = defer.anthropic([*CLAUDES, server_tool], LOADED, search=search)
    assert made[0] == {"type": f"tool_search_tool_{search}_20251119", "name": f"tool_search_tool_{search}"}
    assert [tool["name"] for tool in made[1:]] == [*NAMES, "web_search"]
    assert {tool["name"] for tool in made[1:] if not tool.get("defer_loading")} == {*LOADED, "web_search"}
    assert all(is_valid(ToolUnionParam, tool) for tool in made)
    assert "defer_loading" not in CLAUDES[1]


def test_a_search_is_added_only_where_a_tool_is_deferred():
    assert defer.anthropic(CLAUDES, NAMES) == CLAUDES
    assert defer.openai(OPENAIS, NAMES) == OPENAIS


def test_openai_loads_the_selection_and_defers_the_rest():
    from openai.types.responses import ToolParam

    made = defer.openai([*OPENAIS, {"type": "web_search"}], LOADED)
    assert made[-1] == {"type": "tool_search"}
    assert {tool.get("name", tool["type"]) for tool in made if not tool.get("defer_loading")} == {
        *LOADED, "web_search", "tool_search",
    }  # fmt: skip
    assert all(is_valid(ToolParam, tool) for tool in made)


def test_deferred_tools_of_openai_are_in_the_namespace_of_their_server():
    from openai.types.responses import ToolParam

    made = defer.openai(OPENAIS, LOADED, namespaces={"git": "Repositories"})
    [space] = [tool for tool in made if tool["type"] == "namespace"]
    assert (space["name"], space["description"]) == ("git", "Repositories")
    assert [tool["name"] for tool in space["tools"]] == ["git__read_b", "git__send_a", "git__send_b"]
    assert all(tool["defer_loading"] for tool in space["tools"])
    assert is_valid(ToolParam, space)
    flat = {tool["name"] for tool in made if tool["type"] == "function"}
    assert flat == {*LOADED, *(name for name in NAMES if name.startswith("mail"))}


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-4-5",
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
    "content": [
        {
            "type": "server_tool_use",
            "id": "srv_1",
            "name": "tool_search_tool_bm25",
            "input": {"query": "answer a customer"},
        },
        {
            "type": "tool_search_tool_result",
            "tool_use_id": "srv_1",
            "content": {
                "type": "tool_search_tool_search_result",
                "tool_references": [{"type": "tool_reference", "tool_name": "mail__send_a"}],
            },
        },
        {"type": "tool_use", "id": "use_1", "name": "mail__send_a", "input": {"about": "it"}},
    ],
}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-5.5",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {
            "type": "tool_search_call",
            "id": "ts_1",
            "call_id": None,
            "execution": "server",
            "status": "completed",
            "arguments": {"query": "answer a customer"},
        },
        {
            "type": "tool_search_output",
            "id": "ts_2",
            "call_id": None,
            "execution": "server",
            "status": "completed",
            "tools": [
                {
                    "type": "namespace",
                    "name": "mail",
                    "description": "Mail",
                    "tools": [OPENAIS[NAMES.index("mail__send_a")]],
                }
            ],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "c_1", "name": "mail__send_a", "arguments": "{}"},
    ],
}


@pytest.mark.parametrize(
    "answer",
    [lambda: MESSAGE, message, lambda: RESPONSE, response],
    ids=["anthropic", "anthropic object", "openai", "openai object"],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_search_of_the_provider_and_the_call_after_it_are_learned(answer, is_async):
    async with ToolSelector(CLAUDES, max_tools=2, embedder="static") as selector:
        for _ in range(3):
            with selector.session() as session:
                await session.aselect("answer a customer")
                if is_async:
                    await defer.alearn(session, answer())
                else:
                    defer.learn(session, answer())
        with selector.session() as session:
            selection = await session.aselect("answer a customer")
            assert "mail__send_a" in selection
            found = await session.asearch("answer a customer")
        assert next(each.name for each in found) == "mail__send_a"


REFERENCES: list[Any] = ["x", 5, {}, [1], [{}, {"tool_name": {}}]]
FOUND: list[Any] = ["x", ["x"], [None], [{"type": "namespace"}], [{"type": "namespace", "tools": "x"}]]
RESULTS = [{"type": "tool_search_tool_result", "content": {"tool_references": each}} for each in REFERENCES]
ODD: list[Any] = [
    *({}, None, 5, True, "text", TypeAdapter, [], {"content": "text"}, {"content": 5}),
    {"output": [{"type": "message"}, None, "x"]},
    {"content": [{"type": "tool_use"}, {"type": "tool_use", "name": None}, {"type": ["tool_use"], "name": "x"}]},
    {"content": RESULTS},
    {"output": [{"type": "tool_search_output", "tools": each} for each in FOUND]},
]


@pytest.mark.parametrize(
    "answer",
    [
        lambda: MESSAGE["content"],
        lambda: message().content,
        lambda: {"content": message().content},
        lambda: {"content": [{"type": "mcp_tool_use", "id": "m", "name": "mail__send_a", "server_name": "s"}]},
        lambda: {"output": [{"type": "mcp_call", "name": "mail__send_a", "arguments": "{}"}]},
    ],
)
async def test_parts_of_an_answer_and_calls_of_a_providers_connector_are_learned(answer):
    async with ToolSelector(CLAUDES, max_tools=2, embedder="static") as selector:
        session = selector.session()
        await session.aselect("answer a customer")
        defer.learn(session, answer())
        assert (await session.aselect()).reasons["mail__send_a"].why == "used in this session"


async def test_a_selection_is_taken_as_it_is_and_earlier_marks_do_not_count():
    async with ToolSelector(CLAUDES, max_tools=2, embedder="static") as selector:
        selection = await selector.session().aselect("git read a")
    marked = [{**tool, "defer_loading": True} for tool in CLAUDES]
    made = defer.anthropic(marked, selection)
    assert {tool["name"] for tool in made[1:] if "defer_loading" not in tool} == set(selection.names)
    assert defer.anthropic(made, selection) == made
    assert set(defer.anthropic_mcp("git", selection)["configs"]) == set(selection.names)
    made = defer.openai(OPENAIS, selection)
    assert defer.openai(made, selection) == made


@pytest.mark.parametrize(
    "made", [lambda: defer.anthropic(CLAUDES, "git__read_a"), lambda: defer.openai([{"type": "function"}], [])]
)
def test_what_is_no_selection_or_no_definition_is_refused(made):
    with pytest.raises(UnusableToolError, match="fix: give"):
        made()
