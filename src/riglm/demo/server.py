"""The bundled MCP servers: `python -m riglm.demo.server NAME` serves the tools of one of them on stdio, in both eras.

`servers.json` has for each server its tools, the operation that implements each of them, and the rows with which its
tables begin. The state is in memory. Every session of the demo starts all servers, so this module imports little.
"""

import difflib
import json
import sys
from collections.abc import Mapping
from datetime import date
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from riglm.domain.protocol import HANDSHAKE_VERSIONS, MODERN_VERSIONS

DEFINITIONS: Final = Path(__file__).with_name("servers.json")

Row = dict[str, Any]
Arguments = Mapping[str, Any]


class ToolError(Exception):
    """Raised when a tool cannot do what its arguments ask for."""


class Table:
    """Rows with a unique key, in the order in which they were added."""

    def __init__(self, key: str, rows: list[Row]) -> None:
        self.key, self.rows = key, rows

    def list_rows(self, a: Arguments) -> list[Row]:
        """Return the rows that equal the arguments named like their columns."""
        found = [row for row in self.rows if all(row[name] == a[name] for name in a if name in row)]
        return found[: a.get("limit", 50)]

    def search(self, a: Arguments) -> list[Row]:
        """Return the rows that contain all words of the query."""
        words = a["query"].lower().split()
        found = [row for row in self.rows if all(word in json.dumps(row).lower() for word in words)]
        return found[: a.get("limit", 50)]

    def get(self, a: Arguments) -> Row:
        """Return the row with a key."""
        found = [row for row in self.rows if row[self.key] == a[self.key]]
        if not found:
            raise ToolError(f"{self.key} {a[self.key]!r} does not exist")
        return found[0]

    def create(self, a: Arguments) -> Row:
        """Add a row; its key is the next number unless it is given."""
        last = self.rows[-1][self.key] if self.rows else 0
        row = {self.key: last + 1 if isinstance(last, int) else f"{last[:1]}{len(self.rows) + 1}", **a}
        self.rows.append(row)
        return row

    def update(self, a: Arguments) -> Row:
        """Change the columns of a row that are given."""
        row = self.get(a)
        row.update(a)
        return row

    def append(self, a: Arguments, column: str) -> Row:
        """Add the arguments to a column that has several values."""
        row = self.get(a)
        values = [value for name, value in a.items() if name != self.key]
        row.setdefault(column, []).append(values[0] if len(values) == 1 else values)
        return row

    def delete(self, a: Arguments) -> str:
        """Remove a row."""
        self.rows.remove(self.get(a))
        return f"deleted {a[self.key]}"

    def find_free_time(self, a: Arguments) -> list[str]:
        """Return the starts of all free slots of a day, on half hours between 08:00 and 18:00."""
        busy = [(_minutes(row["start"]), _minutes(row["end"])) for row in self.rows if row["date"] == a["date"]]
        starts = range(8 * 60, 18 * 60 - a["minutes"] + 1, 30)
        free = [at for at in starts if all(end <= at or at + a["minutes"] <= begin for begin, end in busy)]
        return [f"{at // 60:02}:{at % 60:02}" for at in free]


def _minutes(time: str) -> int:
    hours, minutes = time.split(":")
    return 60 * int(hours) + int(minutes)


class Files(Table):
    """Text files by their paths."""

    def read(self, a: Arguments) -> str:
        """Return a text, or its first or last lines."""
        lines = self.get(a)["content"].splitlines()
        return "\n".join(lines[: a["head"]] if "head" in a else lines[-a["tail"] :] if "tail" in a else lines)

    def read_all(self, a: Arguments) -> str:
        """Return several texts below their paths."""
        return "\n---\n".join(f"{path}:\n{self.read({'path': path})}" for path in a["paths"])

    def write(self, a: Arguments) -> str:
        """Create or replace a text."""
        self.rows = [row for row in self.rows if row["path"] != a["path"]] + [dict(a)]
        return f"wrote {a['path']}"

    def edit(self, a: Arguments) -> str:
        """Replace pieces of a text."""
        text = str(self.get(a)["content"])
        for edit in a["edits"]:
            if edit["oldText"] not in text:
                raise ToolError(f"{a['path']} does not contain {edit['oldText']!r}")
            text = text.replace(edit["oldText"], edit["newText"], 1)
        if not a.get("dryRun"):
            self.get(a)["content"] = text
        return text

    def move(self, a: Arguments) -> str:
        """Give a text another path."""
        self.get({"path": a["source"]})["path"] = a["destination"]
        return f"moved {a['source']} to {a['destination']}"

    def list_directory(self, a: Arguments) -> str:
        """Return the names directly below a path."""
        below = [path.split("/") for path in self._below(a)]
        return "\n".join(sorted({f"[{'DIR' if rest else 'FILE'}] {name}" for name, *rest in below}))

    def tree(self, a: Arguments) -> str:
        """Return all paths below a path with their sizes."""
        paths = sorted(f"{a['path'].rstrip('/')}/{path}" for path in self._below(a))
        return "\n".join(f"{path} {len(self.get({'path': path})['content'])}" for path in paths)

    def find(self, a: Arguments) -> str:
        """Return the paths whose last part matches a pattern."""
        found = [path for path in self._below(a) if fnmatch(path.split("/")[-1], a["pattern"])]
        return "\n".join(f"{a['path']}/{path}" for path in found)

    def info(self, a: Arguments) -> Row:
        """Return the size of a text."""
        text = self.get(a)["content"]
        return {"type": "file", "size": len(text.encode()), "lines": text.count("\n"), "permissions": "644"}

    def _below(self, a: Arguments) -> list[str]:
        prefix = a["path"].rstrip("/") + "/"
        return [row["path"].removeprefix(prefix) for row in self.rows if row["path"].startswith(prefix)]


class Graph(Table):
    """Entities of a knowledge graph with their observations, or its relations."""

    def create_all(self, a: Arguments) -> str:
        """Add rows that do not exist."""
        (rows,) = a.values()
        known = [row.get("name", row) for row in self.rows]
        new = [row for row in rows if row.get("name", row) not in known]
        self.rows += new
        return f"created {len(new)}"

    def delete_all(self, a: Arguments) -> str:
        """Remove rows, given by themselves or by their keys."""
        (rows,) = a.values()
        self.rows = [row for row in self.rows if row not in rows and row[self.key] not in rows]
        return f"{len(self.rows)} are left"

    def add_observations(self, a: Arguments) -> str:
        """Add observations to entities."""
        for each in a["observations"]:
            self.get({"name": each["entityName"]})["observations"] += each["contents"]
        return "added"

    def delete_observations(self, a: Arguments) -> str:
        """Remove observations of entities."""
        for each in a["deletions"]:
            entity = self.get({"name": each["entityName"]})
            entity["observations"] = [one for one in entity["observations"] if one not in each["observations"]]
        return "deleted"

    def open_nodes(self, a: Arguments) -> list[Row]:
        """Return the entities with these names."""
        return [row for row in self.rows if row["name"] in a["names"]]


class Office(Table):
    """Tasks, next to calculations that need no table."""

    _METERS: Final = {"mm": 0.001, "cm": 0.01, "m": 1.0, "km": 1000.0, "in": 0.0254, "ft": 0.3048, "mi": 1609.344}

    def convert_unit(self, a: Arguments) -> float:
        """Convert a length."""
        for unit in (a["unit"], a["to"]):
            if unit not in self._METERS:
                raise ToolError(f"{unit!r} is none of {', '.join(self._METERS)}")
        return round(float(a["value"]) * self._METERS[a["unit"]] / self._METERS[a["to"]], 9)

    def add_numbers(self, a: Arguments) -> float:
        """Return the sum of numbers."""
        return float(sum(a["numbers"]))

    def describe_numbers(self, a: Arguments) -> Row:
        """Return the count, sum, mean, median, minimum and maximum of numbers."""
        numbers = sorted(a["numbers"]) or [0.0]
        count, middle = len(numbers), len(numbers) // 2
        median = (numbers[middle] + numbers[-middle - 1]) / 2
        total = sum(numbers)
        found = {"count": count, "sum": total, "mean": total / count, "median": median}
        return {**found, "minimum": numbers[0], "maximum": numbers[-1]}

    def days_between(self, a: Arguments) -> int:
        """Return the number of days from one date to another."""
        return (date.fromisoformat(a["end"]) - date.fromisoformat(a["start"])).days

    def count_words(self, a: Arguments) -> Row:
        """Return the numbers of characters, words and lines of a text."""
        return {"characters": len(a["text"]), "words": len(a["text"].split()), "lines": len(a["text"].splitlines())}

    def compare_texts(self, a: Arguments) -> str:
        """Return the differences of two texts."""
        return "\n".join(difflib.unified_diff(a["before"].splitlines(), a["after"].splitlines(), lineterm=""))


_KINDS: Final[Mapping[str, type[Table]]] = {"filesystem": Files, "memory": Graph, "office": Office}


class Server:
    """One of the bundled servers, without the pipes."""

    def __init__(self, name: str) -> None:
        found = json.loads(DEFINITIONS.read_text("utf-8"))[name]
        self._name = name
        self._tables = {each: _KINDS.get(name, Table)(**table) for each, table in found["tables"].items()}
        self._does = {tool["name"]: tool.pop("does") for tool in found["tools"]}
        self._tools = found["tools"]

    def answer(self, request: Row) -> Row | None:
        """Return the response to a message; None for a notification."""
        if "id" not in request:
            return None
        params = request.get("params") or {}
        version = params.get("_meta", {}).get("io.modelcontextprotocol/protocolVersion")
        if version is not None and version not in MODERN_VERSIONS:
            data = {"supported": list(MODERN_VERSIONS), "requested": version}
            return _response(request, error={"code": -32022, "message": "Unsupported protocol version", "data": data})
        result = self._result(request.get("method"), params)
        if result is None:
            return _response(request, error={"code": -32601, "message": "Method not found"})
        if version is not None:
            caching = {} if request["method"] == "tools/call" else {"ttlMs": 3_600_000, "cacheScope": "public"}
            result = {"resultType": "complete", **result, **caching}
        return _response(request, result=result)

    def _result(self, method: Any, params: Row) -> Row | None:
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": self._name, "version": "1.0"}}
        match method:
            case "initialize":
                asked = params.get("protocolVersion")
                return {"protocolVersion": asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1], **about}
            case "server/discover":
                return {"supportedVersions": list(MODERN_VERSIONS), **about}
            case "ping":
                return {}
            case "tools/list":
                return {"tools": self._tools}
            case "tools/call":
                return self._call(params.get("name"), params.get("arguments") or {})
        return None

    def _call(self, tool: Any, arguments: Row) -> Row:
        try:
            operation, table, *extra = self._does[tool]
            found = getattr(self._tables[table], operation)(arguments, *extra)
        except (ToolError, KeyError, TypeError, ValueError) as error:
            return {"content": [{"type": "text", "text": f"{tool}: {error}"}], "isError": True}
        return {"content": [{"type": "text", "text": found if isinstance(found, str) else json.dumps(found)}]}


def _response(request: Row, **outcome: Row) -> Row:
    return {"jsonrpc": "2.0", "id": request["id"], **outcome}


def main() -> None:
    """Serve until stdin is closed."""
    server = Server(sys.argv[1])
    for line in sys.stdin:
        response = server.answer(json.loads(line))
        if response is not None:
            sys.stdout.write(json.dumps(response) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
