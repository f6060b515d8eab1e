"""An MCP server with the five tools of the spike, each answering with its own name."""

from collections.abc import Callable

from mcp.server.mcpserver import MCPServer

TOOLS = {
    "tavily_search": "Search the web for current information on any topic. Returns snippets and source URLs.",
    "browser_navigate": "Navigate to a URL",
    "add-tasks": "Add new tasks to the task list",
    "get-sum": "Returns the sum of two numbers",
    "echo": "Echoes back the input string",
}


def _tool(name: str) -> Callable[[str], str]:
    def run(text: str = "") -> str:
        return name

    return run


def main() -> None:
    """Serve on stdin and stdout."""
    server = MCPServer("spike")
    for name, description in TOOLS.items():
        server.add_tool(_tool(name), name=name, description=description)
    server.run()


if __name__ == "__main__":
    main()
