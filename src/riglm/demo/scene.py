"""What the demo plays: which servers stand behind riglm, and what a client asks of them."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One call: the tool as riglm names it, its arguments, and whether it is meant to fail."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fails: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Servers in the shape of `mcpServers`, and the visits of a client: each one session with its calls in order."""

    title: str
    servers: Mapping[str, Mapping[str, Any]]
    visits: tuple[tuple[Step, ...], ...]


def npm_scene(programs: Path, directory: Path) -> Scene:
    """Three reference servers from npm, whose programs are in one directory; they may write below the other."""
    files = directory / "files"
    files.mkdir()
    letter = str(files / "letter.txt")
    servers: dict[str, dict[str, Any]] = {
        "everything": {"command": str(programs / "mcp-server-everything")},
        "filesystem": {"command": str(programs / "mcp-server-filesystem"), "args": [str(files)]},
        "memory": {
            "command": str(programs / "mcp-server-memory"),
            "env": {"MEMORY_FILE_PATH": str(directory / "memory.jsonl")},
        },
    }
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the letter"]}
    first = (
        Step("everything__echo", {"message": "hello through riglm"}),
        Step("filesystem__write_file", {"path": letter, "content": "Dear Charles,\n"}),
        Step("filesystem__read_text_file", {"path": letter}),
        Step("filesystem__read_text_file", {"path": str(files / "missing.txt")}, fails=True),
        Step("memory__create_entities", {"entities": [entity]}),
        Step("memory__search_nodes", {"query": "letter"}),
    )
    second = (
        Step("memory__search_nodes", {"query": "Ada"}),
        Step("filesystem__read_text_file", {"path": letter}),
        Step("everything__get-sum", {"a": 40, "b": 2}),
        Step("everything__trigger-long-running-operation", {"duration": 1, "steps": 4}),
    )
    return Scene(title="the reference servers of npm", servers=servers, visits=(first, second))


def bundled_scene() -> Scene:
    """Two small servers that come with riglm."""
    servers = {name: {"command": sys.executable, "args": ["-m", f"riglm.demo.{name}"]} for name in ("notes", "units")}
    first = (
        Step("notes__write_note", {"title": "trip", "text": "12 miles along the coast"}),
        Step("units__convert_length", {"value": 12, "unit": "mi", "to": "km"}),
        Step("notes__read_note", {"title": "trip"}),
        Step("notes__read_note", {"title": "missing"}, fails=True),
        Step("units__celsius_to_fahrenheit", {"degrees": 21}),
    )
    second = (
        Step("units__known_units"),
        Step("notes__write_note", {"title": "shopping", "text": "3 m of rope"}),
        Step("notes__find_notes", {"word": "rope"}),
        Step("units__convert_length", {"value": 3, "unit": "m", "to": "ft"}),
    )
    return Scene(title="two bundled servers", servers=servers, visits=(first, second))
