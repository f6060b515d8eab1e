"""Public data sets as JSON lines: `NAME/tools.jsonl`, and `NAME/SIDE/queries.jsonl` and `sessions.jsonl`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from riglm.application.reports.session_replay import digest
from riglm.domain.tool import ToolProfile

CATALOG: Final = "tools.jsonl"
DEFAULT_LIMIT: Final = 1_000
"""Requests of one set that are measured: the first by the hash of their id."""

Row = dict[str, Any]


class DatasetError(Exception):
    """Raised when a set is missing or cannot be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A request. `gold` are the tools that it needs, each a group of equally right columns of the catalog."""

    id: str
    text: str
    group: str = ""
    gold: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """One set: the whole catalog, and a sample of one side's requests in the order of their hashes."""

    name: str
    side: str
    tools: tuple[ToolProfile, ...]
    queries: tuple[Query, ...]


def rows(path: Path) -> Iterator[Row]:
    """Yield the JSON objects of a file."""
    with path.open(encoding="utf-8-sig") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def find_sets(data: Path, names: Sequence[str] = (), *, side: str, file: str) -> list[Path]:
    """Return the directories of the named sets, without names all that have the file on this side.

    `data` is the directory of sets, or the directory of one set, which is then the only one.

    Raises:
        DatasetError: there is no such set.
    """
    known = [data.resolve()] if (data / CATALOG).exists() else sorted(path.parent for path in data.glob(f"*/{CATALOG}"))
    found = [each for each in known if (each / side / file).exists() and (not names or each.name in names)]
    missing = set(names).difference(each.name for each in found)
    if missing or not found:
        raise DatasetError(f"{data}: no set {' or '.join(sorted(missing))} with {side}/{file}")
    return found


def read_tools(directory: Path) -> list[ToolProfile]:
    """Return the catalog of a set, in its order."""
    return [_profile(row) for row in rows(directory / CATALOG)]


def read_dataset(directory: Path, *, side: str = "dev", limit: int = DEFAULT_LIMIT) -> Dataset:
    """Read the catalog and the side's requests from the directory of a set."""
    tools = read_tools(directory)
    columns = {tool.name: column for column, tool in enumerate(tools)}
    queries = [_query(row, columns) for row in rows(directory / side / "queries.jsonl")]
    queries.sort(key=lambda query: digest(query.id))
    return Dataset(name=directory.name, side=side, tools=tuple(tools), queries=tuple(queries[:limit]))


def _query(row: Row, columns: Mapping[str, int]) -> Query:
    groups = row.get("any_of") or [[tool] for tool in row["tools"]]
    gold = tuple(tuple(columns[name] for name in equal) for equal in groups)
    return Query(id=row["id"], text=row["query"], group=str(row.get("group") or ""), gold=gold)


def _profile(row: Row) -> ToolProfile:
    name, server = row["name"], row.get("server") or ""
    parameters = _parameters(row.get("input_schema", row.get("parameters")))
    return ToolProfile(
        name=name,
        bare_name=row.get("bare_name") or (name.removeprefix(f"{server}__") if server else name),
        server=server,
        server_description=row.get("server_description") or "",
        description=row.get("description") or "",
        parameters=tuple(parameters),
        parameter_descriptions=tuple(text for text in parameters.values() if text),
    )


def _parameters(schema: object) -> dict[str, str]:
    """Return names and descriptions, from a JSON schema, a list of parameters, lists by kind, or a mapping by name."""
    if isinstance(schema, str):
        return _parameters(_parse_lists(schema))
    if isinstance(schema, list):
        named = (item for item in schema if isinstance(item, dict) and isinstance(item.get("name"), str))
        return {item["name"]: _description(item) for item in named}
    if not isinstance(schema, dict):
        return {}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        return {name: _description(item) for name, item in properties.items()}
    lists = [schema.get(kind) for kind in ("required", "optional")]
    if all(isinstance(items, list) for items in lists):
        return {name: text for items in lists for name, text in _parameters(items).items()}
    return {name: _description(item) for name, item in schema.items() if isinstance(item, dict)}


def _parse_lists(text: str) -> list[Any]:
    """Return the items of `required [...] optional [...]`."""
    items: list[Any] = []
    for kind in ("required ", "optional "):
        _, found, rest = text.partition(f"{kind}[")
        try:
            items += json.JSONDecoder().raw_decode(f"[{rest}")[0] if found else []
        except (ValueError, RecursionError):
            continue
    return items


def _description(item: object) -> str:
    text = item.get("description") if isinstance(item, dict) else None
    return text if isinstance(text, str) else ""
