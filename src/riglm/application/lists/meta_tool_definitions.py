"""riglm's own tools, as clients see them."""

from typing import Any, Final

from riglm.domain import jsonrpc

SET_CONTEXT: Final = "set_context"
SEARCH: Final = "search_available_tools"
CALL_TOOL: Final = "call_tool"
INDEX_STATUS: Final = "index_status"
MARK_TOOL: Final = "mark_tool"

NAMES: Final = (SEARCH, CALL_TOOL, SET_CONTEXT, MARK_TOOL, INDEX_STATUS)
"""All of them, in the order in which they are listed."""

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_TOOLS: Final = {"type": "array", "items": {"type": "object"}, "description": "Whole definitions, best first."}
_WITHIN: Final = {"destructiveHint": False, "openWorldHint": False}


def _object(properties: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


_QUERY: Final = _object(
    {"query": {**_TEXT, "description": "The capability you need, in your own words, or a tool's name."}}, ("query",)
)
_FOUND: Final = _object(
    {"message": _TEXT, "tools": _TOOLS, "near": {**_TEXTS, "description": "Names that come close."}},
    ("message", "tools", "near"),
)


def _definition(
    name: str,
    description: str,
    given: dict[str, Any],
    answered: dict[str, Any] | None,
    annotations: dict[str, Any],
) -> bytes:
    members = {"name": name, "description": description, "inputSchema": given}
    if answered is not None:
        members["outputSchema"] = answered
    return jsonrpc.encode({**members, "annotations": annotations})


PROMINENT_SEARCH: Final = _definition(
    SEARCH,
    "Find tools that are not in your list. Your list shows only the likeliest tools; many more exist. Search whenever "
    "you need a capability that no listed tool offers, before you say that it cannot be done. You get whole "
    "definitions; call what you find by its name, or by call_tool.",
    _QUERY,
    _FOUND,
    {"readOnlyHint": True, **_WITHIN},
)
"""The search as it stands first, where it may well be needed."""

DEFINITIONS: Final = {
    SEARCH: _definition(
        SEARCH, "Find tools that are not in your list.", _QUERY, _FOUND, {"readOnlyHint": True, **_WITHIN}
    ),
    CALL_TOOL: _definition(
        CALL_TOOL,
        "Call any tool by its name, also one that is not in your list.",
        _object(
            {
                "name": {**_TEXT, "description": "The tool's name."},
                "arguments": {"type": "object", "description": "Its arguments, by its own schema."},
            },
            ("name",),
        ),
        None,
        {"readOnlyHint": False, "openWorldHint": True},
    ),
    SET_CONTEXT: _definition(
        SET_CONTEXT,
        "Say in a sentence what you are about to do, at the start of each new task: you get the tools for it.",
        _object({"context": {**_TEXT, "description": "The task, in your own words."}}, ("context",)),
        _object(
            {
                "message": _TEXT,
                "confidence": {"type": "number", "description": "How sure the choice is, from 0 to 1."},
                "listed_count": {"type": "integer", "description": "How many tools your list has now."},
                "listed": {**_TEXTS, "description": "Their names, when they are not too many."},
                "tools": _TOOLS,
                "list_changed": {"type": "boolean", "description": "Whether your list has changed."},
            },
            ("message", "confidence", "listed_count", "tools"),
        ),
        {"readOnlyHint": True, "idempotentHint": True, **_WITHIN},
    ),
    MARK_TOOL: _definition(
        MARK_TOOL,
        "Say whether a tool was of use for the current task, so that it is found sooner or later next time.",
        _object({"name": _TEXT, "relevant": {"type": "boolean"}}, ("name", "relevant")),
        _object({"message": _TEXT}, ("message",)),
        {"readOnlyHint": False, "idempotentHint": True, **_WITHIN},
    ),
    INDEX_STATUS: _definition(
        INDEX_STATUS,
        "How well searches recognise meaning now, and how best to ask.",
        _object({}),
        _object({"embeddings": {"type": "object"}, "advice": _TEXT}, ("embeddings",)),
        {"readOnlyHint": True, "idempotentHint": True, **_WITHIN},
    ),
}
"""Each as it stands in a list."""
