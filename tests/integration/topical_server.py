"""An MCP server with sixty tools of twelve topics, each answering with its own name."""

from collections.abc import Callable

from mcp.server.mcpserver import MCPServer

TOPICS = {
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


def _tool(name: str) -> Callable[[str], str]:
    def run(about: str = "") -> str:
        return name

    return run


def main() -> None:
    """Serve on stdin and stdout."""
    server = MCPServer("topical")
    for topic, actions in TOPICS.items():
        for action in actions:
            name = f"{topic}_{action.replace(' ', '_')}"
            server.add_tool(_tool(name), name=name, description=f"{action.capitalize()}, by the {topic} service.")
    server.run()


if __name__ == "__main__":
    main()
