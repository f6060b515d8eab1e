"""A catalog of up to 500 tools, and requests for some of them in other words."""

from typing import Any, Final

_VERBS: Final = {
    "create": "make a new",
    "delete": "erase the",
    "find": "search for the",
    "move": "relocate the",
    "share": "send around the",
    "archive": "store away the",
    "export": "download the",
    "approve": "accept the",
    "encrypt": "protect with a password the",
    "assign": "delegate the",
}
_OTHER_VERBS: Final = (
    *("list", "copy", "rename", "open", "close", "restore", "import", "tag"),
    *("merge", "split", "rotate", "publish", "schedule", "cancel", "reject"),
)
_OBJECTS: Final = {"file": "document", "invoice": "bill", "ticket": "support request", "event": "appointment"}
_OTHER_OBJECTS: Final = (
    *("customer", "message", "channel", "branch", "release", "table", "query", "page"),
    *("image", "video", "song", "route", "device", "sensor", "contract", "folder"),
)
_PARAMETERS: Final = ("id", "workspace", "format", "limit")
_DESCRIPTION: Final = "{name} that {thing}s of this workspace are stored under, as its pages and other tools return it."

QUERIES: Final = tuple(f"{verb} {thing}" for verb in _VERBS.values() for thing in _OBJECTS.values())
"""Forty requests. None shares a word with a tool."""


def tools(count: int) -> list[dict[str, Any]]:
    """Return the first so many tools, about 120 tokens each."""
    pairs = [(verb, thing) for thing in (*_OBJECTS, *_OTHER_OBJECTS) for verb in (*_VERBS, *_OTHER_VERBS)]
    return [_tool(verb, thing) for verb, thing in pairs[:count]]


def _tool(verb: str, thing: str) -> dict[str, Any]:
    described = {
        name: {"type": "string", "description": _DESCRIPTION.format(name=name.capitalize(), thing=thing)}
        for name in _PARAMETERS
    }
    return {
        "name": f"{verb}_{thing}",
        "description": f"{verb.capitalize()} {thing}s.",
        "inputSchema": {"type": "object", "properties": described, "required": ["id"]},
    }
