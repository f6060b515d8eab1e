"""The tools that an agent has, read once."""

import json
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from agent_framework import tool as framework_tool
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Tool as McpTool
from pydantic import BaseModel

from riglm.application.selector.offer import ToolReader, UnusableToolError, read_tool
from riglm.domain.tool import profile


class Counted:
    """A tool that counts how often its description is looked at."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.looks = 0

    @property
    def description(self) -> str:
        self.looks += 1
        return "counts"


def test_a_definition_that_was_changed_in_place_is_read_anew():
    definition, read = {"name": "a", "description": "old"}, ToolReader()
    before = read([definition]).catalog
    definition["description"] = "new"
    assert read([definition]).catalog.digest != before.digest


def test_two_tools_of_one_name_are_refused_and_one_given_twice_is_one():
    tool = {"name": "a"}
    assert list(ToolReader()([tool, tool]).objects) == ["a"]
    with pytest.raises(UnusableToolError, match="two tools are called 'a' — fix: give one of them another name"):
        ToolReader()([tool, {"name": "a"}])


def test_a_tool_is_named_by_itself_by_its_like_or_by_its_name():
    tool = Counted("a")
    offer = ToolReader()([tool])
    assert [offer.name_of(each) for each in ("a", tool, {"name": "a"}, "unknown")] == ["a", "a", "a", "unknown"]
    assert tool.looks == 1


# --- tools of every library are read, and what cannot be read says so ---


SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "description": "where it is"}}}


def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: where it is
    """
    return path


NAMED = {"name": "read_file", "description": "Read a file."}
SHAPES: dict[str, Any] = {
    "MCP": {**NAMED, "inputSchema": SCHEMA},
    "Anthropic": {**NAMED, "input_schema": SCHEMA},
    "OpenAI chat": {"type": "function", "function": {**NAMED, "parameters": SCHEMA}},
    "OpenAI chat, custom": {"type": "custom", "custom": {**NAMED, "parameters": SCHEMA}},
    "Amazon Bedrock": {"toolSpec": {**NAMED, "inputSchema": {"json": SCHEMA}}},
    "OpenAI responses": {"type": "function", **NAMED, "parameters": SCHEMA, "strict": True},
    "MCP SDK": McpTool(**NAMED, input_schema=SCHEMA),
    "Strands Agents": SimpleNamespace(tool_spec={**NAMED, "inputSchema": {"json": SCHEMA}}),
    "agent-framework": framework_tool(read_file, schema=SCHEMA),
}
MADE_BY = {
    "pydantic-ai": lambda: import_module("pydantic_ai").Tool(read_file),
    "pydantic-ai definition": lambda: import_module("pydantic_ai").Tool(read_file).tool_def,
    "LangChain": lambda: import_module("langchain_core.tools").tool(read_file, parse_docstring=True),
    "OpenAI Agents SDK": lambda: import_module("agents").function_tool(read_file),
}
"""Tools of libraries that take long to import, which is left to the tests."""


@pytest.mark.parametrize("library", [*SHAPES, *MADE_BY])
def test_a_tool_says_the_same_of_itself_whatever_library_it_belongs_to(library):
    said = profile(read_tool(SHAPES[library] if library in SHAPES else MADE_BY[library]()))
    assert said.name == "read_file"
    assert said.description.startswith("Read a file.")
    assert said.parameters == ("path",)
    assert said.parameter_descriptions == ("where it is",)


def test_a_function_is_a_tool_by_its_name_its_doc_and_its_parameters():
    said = profile(read_tool(read_file))
    assert (said.name, said.parameters) == ("read_file", ("path",))
    assert said.description.startswith("Read a file.")


def test_a_schema_that_is_no_json_is_left_out():
    odd = {"name": "odd", "description": "is odd", "inputSchema": {"type": "object", "default": object()}}
    assert json.loads(bytes(read_tool(odd).raw)) == {"name": "odd", "description": "is odd"}


class GeminiTool(BaseModel):
    """A tool of Google's SDK: functions, or one that Google runs."""

    google_search: dict[str, Any] | None = None
    function_declarations: list[dict[str, Any]] | None = None


class NamedTool(BaseModel):
    """A tool of a provider's SDK that has a type, and maybe a name."""

    type: str
    name: str | None = None


BUILT_IN: dict[str, Any] = {
    "OpenAI": {"type": "web_search"},
    "OpenAI, with options": {"type": "file_search", "vector_store_ids": ["vs_1"], "filters": {"type": "eq"}},
    "OpenAI, a remote MCP server": {"type": "mcp", "server_label": "docs", "server_description": "docs"},
    "OpenAI, a search run by the client": {"type": "tool_search", "execution": "client", "parameters": SCHEMA},
    "LangChain": {"type": "code_interpreter", "container": {"type": "auto"}},
    "Anthropic, server": {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
    "Anthropic, client": {"type": "bash_20250124", "name": "bash"},
    "Anthropic, MCP": {"type": "mcp_toolset", "mcp_server_name": "docs"},
    "Gemini": {"google_search": {}},
    "Gemini, REST": {"googleSearch": {}, "urlContext": {}},
    "Gemini, SDK": GeminiTool(google_search={}),
    "Amazon Bedrock": {"cachePoint": {"type": "default"}},
    "OpenAI, dumped": {"type": "web_search", "name": None, "filters": None},
    "OpenAI, with an empty name": {"type": "web_search", "name": ""},
    "OpenAI, a named remote MCP server": {"type": "mcp", "name": "docs", "server_url": "http://x"},
    "Anthropic, without a date": {"type": "tool_search_tool_bm25", "name": "tool_search"},
    "AI SDK": {"type": "provider-defined", "id": "openai.web_search", "name": "web_search", "args": {}},
    "with an id": {"id": "web-search"},
    "Gemini, functions": {"function_declarations": [NAMED]},
    "Gemini, functions and a search": {"functionDeclarations": [NAMED], "googleSearch": {}},
    "Gemini, SDK, functions": GeminiTool(function_declarations=[NAMED]),
    "Gemini, dumped": GeminiTool(google_search={}).model_dump(),
    "an object without a name": NamedTool(type="web_search"),
    "an object with a name": NamedTool(type="tool_search_tool_bm25", name="tool_search"),
}
CONFIG = {"type": "mcp", "server_label": "x", "server_url": "http://x"}
BUILT_IN_AGENTS = {
    "OpenAI Agents SDK": lambda: import_module("agents").WebSearchTool(),
    "OpenAI Agents SDK, MCP": lambda: import_module("agents").HostedMCPTool(tool_config=CONFIG),
}


@pytest.mark.parametrize("provider", [*BUILT_IN, *BUILT_IN_AGENTS])
def test_a_tool_that_the_provider_defines_passes_in_its_place(provider):
    built_in = BUILT_IN[provider] if provider in BUILT_IN else BUILT_IN_AGENTS[provider]()
    tools = [SHAPES["MCP"], built_in, {"name": "b"}, built_in]
    offer = ToolReader()(tools)
    assert offer.catalog.names == ("read_file", "b")
    assert [*offer.chosen({"b"})] == [built_in, {"name": "b"}, built_in]


NOTHING = [
    *[42, None, {}, {"name": ""}, {"name": 3}, [], type("NoName", (), {"__repr__": lambda _: "NoName()"})()],
    *[{"type": "function"}, {"type": "function", "function": {"description": "x"}}, {"type": "custom"}, {"type": ""}],
    *[{"type": 3}, SCHEMA, {"inputSchema": SCHEMA}, {"description": "x"}, {"type": "web_search", "name": 3}],
    *[{"functionDeclarations": []}, {"function_declarations": {}}, {"type": "function", "name": None}, {"id": 3}],
]


@pytest.mark.parametrize("nothing", NOTHING, ids=repr)
def test_what_is_no_tool_is_refused_with_what_would_be_one(nothing):
    with pytest.raises(UnusableToolError, match="it has no name — fix: give a definition as MCP, OpenAI or Anthropic"):
        ToolReader()([nothing])


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    )
)
def test_whatever_a_definition_holds_it_is_read_by_its_name(anything):
    for key in ("description", "inputSchema", "function", "parameters"):
        found = read_tool({"name": "t", key: anything} | ({"function": 1} if key == "function" else {}))
        assert found.name == "t"
