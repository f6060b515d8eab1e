"""An MCP server that lists the tools of a JSON file, and answers nothing before a gate, a second file, is there."""

import json
import sys
import time
from pathlib import Path
from typing import Any

_POLL_SECONDS = 0.01


def _answer(method: str, params: dict[str, Any], tools: list[str]) -> dict[str, Any]:
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        info = {"name": "gated", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}
    return {"content": [{"type": "text", "text": params["name"]}]}


def main() -> None:
    """Serve on stdin and stdout."""
    file, gate = map(Path, sys.argv[1:])
    for line in sys.stdin:
        asked = json.loads(line)
        while not gate.exists():
            time.sleep(_POLL_SECONDS)
        if "id" in asked and "method" in asked:
            said = _answer(asked["method"], asked.get("params") or {}, json.loads(file.read_text("utf-8")))
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": said}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
