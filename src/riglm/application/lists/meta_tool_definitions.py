"""The meta-tools as clients see them."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from riglm.domain import jsonrpc

SET_CONTEXT: Final = "set_context"
SEARCH: Final = "search_available_tools"
CALL_TOOL: Final = "call_tool"
INDEX_STATUS: Final = "index_status"
MARK_TOOL: Final = "mark_tool"

NAMES: Final = (SEARCH, CALL_TOOL, SET_CONTEXT, MARK_TOOL, INDEX_STATUS)
"""The names of all meta-tools, in the order in which they are listed."""

_TEXT: Final = {"type": "string"}
_READ_ONLY: Final = {"readOnlyHint": True}


def _definition(
    description: str, properties: Mapping[str, Any], annotations: Mapping[str, bool] | None = None
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    if properties:
        schema["required"] = [name for name in properties if name != "arguments"]
    return {"description": description, "inputSchema": schema, **({"annotations": annotations} if annotations else {})}


_DEFINITIONS: Final = {
    SEARCH: _definition(
        "Find tools that are not listed. Search before you conclude that no tool can do something.",
        {"query": {**_TEXT, "description": "What the tool should do, or its name"}},
        _READ_ONLY,
    ),
    CALL_TOOL: _definition("Call any tool by name, listed or not.", {"name": _TEXT, "arguments": {"type": "object"}}),
    SET_CONTEXT: _definition(
        "Get the tools for a task. Call it once when a new task begins.",
        {"context": {**_TEXT, "description": "The task in a sentence"}},
        _READ_ONLY,
    ),
    MARK_TOOL: _definition(
        "Report whether a tool was useful for the current task.", {"name": _TEXT, "relevant": {"type": "boolean"}}
    ),
    INDEX_STATUS: _definition("Get the state of the search index and how to phrase searches.", {}, _READ_ONLY),
}


def definitions(names: Collection[str], index: str = "") -> dict[str, bytes]:
    """Return the raw definitions of meta-tools in their order; `index` names what the search can find."""
    found = {}
    for name in NAMES:
        if name in names:
            given = _DEFINITIONS[name]
            if name == SEARCH and index:
                given = {**given, "description": f"{given['description']} Hidden tools: {index}"}
            found[name] = jsonrpc.encode({"name": name, **given})
    return found
