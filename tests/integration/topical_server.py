"""A server of both eras with sixty tools of twelve topics, each answering with its own name.

Tests start it many times, so it writes the protocol by hand: an SDK takes a second of the processor to load.
"""

import json
import sys
from typing import Any, Final

TOPICS: Final = {
    "calendar": ("create event", "list events", "delete event", "find free slot", "invite guest"),
    "email": ("send mail", "search inbox", "archive thread", "draft reply", "mark unread"),
    "files": ("read file", "write file", "list directory", "move file", "delete file"),
    "tickets": ("create ticket", "list tickets", "close ticket", "comment on ticket", "assign ticket"),
    "database": ("run query", "list tables", "describe table", "export rows", "create index"),
    "weather": ("current weather", "forecast", "air quality", "sunrise time", "pollen count"),
    "maps": ("find route", "geocode address", "nearby places", "travel time", "elevation"),
    "music": ("play song", "pause playback", "search artist", "create playlist", "set volume"),
    "shell": ("run command", "list processes", "kill process", "disk usage", "environment"),
    "notes": ("add note", "search notes", "tag note", "delete note", "export notes"),
    "payments": ("create invoice", "refund payment", "list charges", "customer balance", "send receipt"),
    "sms": ("send text message", "list messages", "block number", "verify phone", "schedule message"),
}
_ABOUT: Final = {
    "type": "object",
    "properties": {
        "about": {"type": "string", "title": "About", "default": "", "description": "as in the request " * 60}
    },
}
_SERVER: Final = {"name": "topical", "version": "1"}
_CAPABILITIES: Final = {"tools": {}}
_DISCOVERED: Final = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": _CAPABILITIES,
    "_meta": {"io.modelcontextprotocol/serverInfo": _SERVER},
}


def _tools() -> list[dict[str, Any]]:
    return [
        {
            "name": f"{topic}_{action.replace(' ', '_')}",
            "description": f"{action.capitalize()}, by the {topic} service.",
            "inputSchema": _ABOUT,
        }
        for topic, actions in TOPICS.items()
        for action in actions
    ]


def _result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": _CAPABILITIES, "serverInfo": _SERVER}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["name"]}]}
    told = {"tools/list": {"tools": _tools()}, "server/discover": _DISCOVERED}.get(method)
    return told and {"ttlMs": 0, "cacheScope": "private", **told}


def _answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    result = _result(method, params)
    if result is None:
        return {"error": {"code": -32601, "message": "Method not found"}}
    modern = "io.modelcontextprotocol/protocolVersion" in params.get("_meta", {})
    return {"result": {**result, "resultType": "complete"} if modern else result}


def main() -> None:
    """Serve on stdin and stdout."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked and "method" in asked:
            said = _answer(asked["method"], asked.get("params") or {})
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
