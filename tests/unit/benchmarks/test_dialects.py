"""What the scripted model reads of requests."""

import json

import pytest
from benchmarks.clients.dialects import LoadedTool, ToolCall, dialect_of

RESPONSES = dialect_of("/v1/responses")
ADDED = {
    "type": "additional_tools",
    "role": "developer",
    "tools": [
        {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]},
        {"type": "function", "name": "wait"},
        {"type": "function", "name": "later", "defer_loading": True},
    ],
}


@pytest.mark.parametrize("tools", [{}, {"tools": None}, {"tools": [{"type": "web_search"}]}])
def test_tools_that_an_input_item_adds_are_loaded_like_those_of_the_request(tools) -> None:
    assert RESPONSES is not None
    asked = {"input": [{"type": "message", "role": "user", "content": "it"}, ADDED], **tools}
    own = [LoadedTool("web_search")] if tools.get("tools") else []
    assert RESPONSES.loaded(asked) == [*own, LoadedTool("exec", "functions", is_custom=True), LoadedTool("wait")]
    assert len(RESPONSES.tools(asked)) == 3 + len(own)


def test_a_custom_tool_is_called_with_text_in_its_namespace() -> None:
    assert RESPONSES is not None
    call = ToolCall(LoadedTool("exec", "functions", is_custom=True), {"input": "text(1)"}, "c1")
    body, _ = RESPONSES.answer({"input": []}, 1, call)
    [item] = json.loads(body)["output"]
    assert (item["type"], item["name"], item["namespace"]) == ("custom_tool_call", "exec", "functions")
    assert item["input"] == "text(1)"
    assert "arguments" not in item
