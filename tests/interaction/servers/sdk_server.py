"""A server built on the MCP SDK: `python sdk_server.py [--transport http --port N]`."""

import argparse
import json
import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("sdk", instructions="Add and tell.")


@server.tool()
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


@server.tool()
async def steps(count: int, ctx: Context) -> str:
    """Reports progress on each step."""
    for step in range(1, count + 1):
        await ctx.report_progress(step, count, f"step {step}")
    return "done"


@server.tool()
def refuse() -> str:
    """Fails."""
    raise ValueError("as it is told")


@server.resource("note://sdk/one")
def note() -> str:
    """One note."""
    return "a note of the sdk"


@server.prompt()
def greet(name: str) -> str:
    """A greeting."""
    return f"Greet {name}"


def main() -> None:
    """Serve on stdin and stdout, or on a port of loopback that is printed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=("stdio", "http"), default="stdio")
    parser.add_argument("--port", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.transport == "stdio":
        server.run("stdio")
        return
    import socket

    import uvicorn

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", chosen.port))
        sys.stdout.write(json.dumps({"port": listener.getsockname()[1]}) + "\n")
        sys.stdout.flush()
        config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
