"""A small real MCP server: notes, kept as long as it runs. `python -m riglm.demo.notes` serves on stdio."""

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("notes", version="1.0", log_level="ERROR")
_notes: dict[str, str] = {}


@server.tool()
def write_note(title: str, text: str) -> str:
    """Write or overwrite a note."""
    _notes[title] = text
    return f"{title}: {len(text)} characters"


@server.tool()
def read_note(title: str) -> str:
    """Read a note by its title."""
    if title not in _notes:
        raise ToolError(f"there is no note {title!r}")
    return _notes[title]


@server.tool()
def find_notes(word: str) -> list[str]:
    """The titles of all notes that hold a word."""
    return [title for title, text in _notes.items() if word.lower() in text.lower()]


if __name__ == "__main__":
    server.run()
