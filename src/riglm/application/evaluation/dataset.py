"""Evaluation data: a catalogue and requests with the tools that answer them, as JSON lines."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from riglm.application.evaluation.lines import (
    DatasetError,
    group_of,
    name_list,
    rows,
    text_of,
    unknown_tool,
    wrong,
)
from riglm.application.evaluation.sets import CATALOGUE
from riglm.application.json_lines import Row
from riglm.domain.tool import ToolProfile

DEFAULT_LIMIT: Final = 1_000
"""Requests of one set that are measured: the first by the hash of their id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A request. `gold` are the tools that it needs, each a group of equally right columns of the catalogue."""

    id: str
    text: str
    group: str
    gold: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """One set: the whole catalogue, and a sample of one side's requests in the order of their hashes."""

    name: str
    side: str
    tools: tuple[ToolProfile, ...]
    queries: tuple[Query, ...]


def read_dataset(directory: Path, *, side: str = "dev", limit: int = DEFAULT_LIMIT) -> Dataset:
    """Read `tools.jsonl` and the side's `queries.jsonl` from the directory of a set.

    Raises:
        DatasetError: a file is missing, or a line is not what it must be.
    """
    tools = read_tools(directory)
    columns = {tool.name: column for column, tool in enumerate(tools)}
    queries = [_query(row, columns, place) for row, place in rows(directory / side / "queries.jsonl", key="id")]
    queries.sort(key=lambda query: digest(query.id))
    return Dataset(name=directory.name, side=side, tools=tuple(tools), queries=tuple(queries[:limit]))


def read_tools(directory: Path) -> list[ToolProfile]:
    """The catalogue of a set, in its order.

    Raises:
        DatasetError: the file is missing or empty, a line is not what it must be, or two tools have one name.
    """
    path = directory / CATALOGUE
    tools = [_profile(row, place) for row, place in rows(path, key="name")]
    if not tools:
        raise DatasetError(f"{path}: no tool in it — fix: one JSON object with a name on each line")
    return tools


def digest(text: str) -> int:
    """A number that orders and splits samples: the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:6], "big")


def _query(row: Row, columns: Mapping[str, int], place: str) -> Query:
    wording = text_of(row, "query", place, needed=True)
    return Query(id=row["id"], text=wording, group=group_of(row, place), gold=tuple(_gold(row, columns, place)))


def _gold(row: Row, columns: Mapping[str, int], place: str) -> Iterator[tuple[int, ...]]:
    key = "any_of" if row.get("any_of") else "tools"
    groups = row.get(key)
    if key == "tools":
        groups = [[tool] for tool in name_list(groups, key, place)]
    if not groups or not isinstance(groups, list) or not all(groups):
        fix = 'write "tools": ["name", ...], or "any_of": [["name", ...], ...] where one of several will do'
        raise wrong(place, key, "a list that is not empty", row.get(key), fix)
    for equal in groups:
        for name in name_list(equal, key, place):
            if name not in columns:
                raise unknown_tool(place, key, name)
        yield tuple(columns[name] for name in equal)


def _profile(row: Row, place: str) -> ToolProfile:
    name, server = row["name"], text_of(row, "server", place)
    prefix = f"{server}__"
    parameters = _parameters(row.get("input_schema", row.get("parameters")))
    return ToolProfile(
        name=name,
        bare_name=text_of(row, "bare_name", place) or (name.removeprefix(prefix) if server else name),
        server=server,
        server_description=text_of(row, "server_description", place),
        description=text_of(row, "description", place),
        parameters=tuple(parameters),
        parameter_descriptions=tuple(said for said in parameters.values() if said),
    )


def _parameters(schema: object) -> dict[str, str]:
    """Names and descriptions, from a JSON schema, a list of parameters, lists by kind, or a mapping by name."""
    if isinstance(schema, str):
        return _parameters(_written_lists(schema))
    if isinstance(schema, list):
        named = (item for item in schema if isinstance(item, dict) and isinstance(item.get("name"), str))
        return {item["name"]: _said(item) for item in named}
    if not isinstance(schema, dict):
        return {}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        return {name: _said(item) for name, item in properties.items()}
    lists = [schema.get(kind) for kind in ("required", "optional")]
    if all(isinstance(items, list) for items in lists):
        return {name: said for items in lists for name, said in _parameters(items).items()}
    return {name: _said(item) for name, item in schema.items() if isinstance(item, dict)}


def _written_lists(text: str) -> list[Any]:
    """The items of `required [...] optional [...]`."""
    items: list[Any] = []
    for kind in ("required ", "optional "):
        _, found, rest = text.partition(f"{kind}[")
        try:
            items += json.JSONDecoder().raw_decode(f"[{rest}")[0] if found else []
        except (ValueError, RecursionError):
            continue
    return items


def _said(item: object) -> str:
    said = item.get("description") if isinstance(item, dict) else None
    return said if isinstance(said, str) else ""
