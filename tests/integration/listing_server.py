"""An MCP server that lists the tools of a JSON file, whatever they are, and answers each call with the tool's name.

With the argument `modern` it also answers requests of the modern era, with `slow` it takes its time to list, with
`paged` it lists one tool a page, and with `careless` it fails each call after one without an id. After a call with the
argument `then`, it exits, or reads the file again and announces a change.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

_LIST_SECONDS = 1.5 if "slow" in sys.argv else 0.0
_COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if "modern" in sys.argv else {}


def _answer(method: str, params: dict[str, Any], tools: list[Any]) -> dict[str, Any]:
    if method == "server/discover" and "modern" in sys.argv:
        return {"result": {**_COMPLETE, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
    if method == "initialize":
        return {
            "result": {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "listing", "version": "1"},
            }
        }
    if method == "tools/list":
        time.sleep(_LIST_SECONDS)
        if "paged" in sys.argv:
            place = int(params.get("cursor", 0))
            more = {"nextCursor": str(place + 1)} if place + 1 < len(tools) else {}
            return {"result": {**_COMPLETE, "tools": tools[place : place + 1], **more}}
        return {"result": {**_COMPLETE, "tools": tools}}
    if method == "tools/call":
        return {"result": {**_COMPLETE, "content": [{"type": "text", "text": params["name"]}]}}
    return {"error": {"code": -32601, "message": "Method not found"}}


def main() -> None:
    """Serve on stdin and stdout."""
    tools = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    is_spoilt = False
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked and asked.get("method", "").lower() == "tools/call" and "careless" in sys.argv:
            is_spoilt = True
        if "id" in asked and "method" in asked:
            method = "spoilt" if is_spoilt and asked["method"] == "tools/call" else asked["method"]
            said = _answer(method, asked.get("params") or {}, tools)
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}) + "\n")
            sys.stdout.flush()
            then = (asked.get("params") or {}).get("arguments", {}).get("then")
            if then == "exit":
                return
            if then == "announce":
                tools = json.loads(Path(sys.argv[1]).read_text("utf-8"))
                sys.stdout.write('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n')
                sys.stdout.flush()


if __name__ == "__main__":
    main()
