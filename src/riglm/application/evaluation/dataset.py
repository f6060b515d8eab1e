"""Evaluation data: a catalogue and requests with the tools that answer them, as JSON lines."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from riglm.domain.errors import RiglmError
from riglm.domain.tool import ToolProfile

DEFAULT_LIMIT: Final = 1_000
"""Requests of one set that are measured: the first by the hash of their id."""


class DatasetError(RiglmError):
    """Evaluation data is missing or not as it must be. The message names file, line and fix."""


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
    queries = [_query(row, columns, place) for row, place in rows(directory / side / "queries.jsonl")]
    queries.sort(key=lambda query: digest(query.id))
    return Dataset(name=directory.name, side=side, tools=tuple(tools), queries=tuple(queries[:limit]))


def set_names(data: Path, side: str) -> list[str]:
    """The sets in a directory that have requests on a side, in order of their names.

    Raises:
        DatasetError: there is no such directory, or no set in it.
    """
    found = sorted(path.parent.name for path in data.glob("*/tools.jsonl"))
    named = [name for name in found if (data / name / side / "queries.jsonl").is_file()]
    if not named:
        raise DatasetError(f"{data}: no set with tools.jsonl and {side}/queries.jsonl in it — fix: another --data")
    return named


def read_tools(directory: Path) -> list[ToolProfile]:
    """The catalogue of a set, in its order.

    Raises:
        DatasetError: the file is missing, a line is not what it must be, or two tools have one name.
    """
    tools: dict[str, ToolProfile] = {}
    for row, place in rows(directory / "tools.jsonl"):
        tool = _profile(row, place)
        if tool.name in tools:
            raise DatasetError(f"{place}: a second tool {tool.name!r} — fix: names must differ")
        tools[tool.name] = tool
    return list(tools.values())


def rows(path: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Each JSON object of a file of JSON lines, and the place that it stands in for messages; empty lines are skipped.

    Raises:
        DatasetError: the file cannot be read, or a line is no JSON object.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _object(line, f"{path}:{number}"), f"{path}:{number}"
    except OSError as error:
        raise DatasetError(
            f"{path}: {error.strerror} — fix: --data must hold sets as the documentation says"
        ) from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: {error} — fix: write it in UTF-8") from error


def digest(text: str) -> int:
    """A number that orders and splits samples: the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:6], "big")


def _object(line: str, place: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{place}: {error} — fix: one JSON object on each line") from error
    if not isinstance(value, dict):
        raise DatasetError(f"{place}: not a JSON object — fix: one JSON object on each line")
    return value


def _text(row: Mapping[str, Any], key: str, place: str, *, needed: bool = False) -> str:
    value = row.get(key)
    if isinstance(value, str) and (value or not needed):
        return value
    if value is None and not needed:
        return ""
    raise DatasetError(f"{place}: {key!r} must be a text, not {value!r:.60}")


def _query(row: Mapping[str, Any], columns: Mapping[str, int], place: str) -> Query:
    text = _text(row, "query", place, needed=True)
    groups = row.get("any_of") or [[tool] for tool in _names(row.get("tools"), place)]
    if not isinstance(groups, list) or not groups:
        raise DatasetError(f"{place}: no 'tools' — fix: name the tools that answer the request")
    gold = []
    for group in groups:
        unknown = [name for name in _names(group, place) if name not in columns]
        if unknown or not group:
            raise DatasetError(f"{place}: unknown tool {unknown or group!r:.80} — fix: a name of tools.jsonl")
        gold.append(tuple(columns[name] for name in group))
    group_name = row.get("group")
    identity = _text(row, "id", place, needed=True)
    return Query(id=identity, text=text, group=str(group_name) if group_name else "", gold=tuple(gold))


def _names(value: object, place: str) -> Sequence[str]:
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return value
    raise DatasetError(f"{place}: 'tools' must be a list of names, 'any_of' a list of such lists, not {value!r:.60}")


def _profile(row: Mapping[str, Any], place: str) -> ToolProfile:
    name, server = _text(row, "name", place, needed=True), _text(row, "server", place)
    prefix = f"{server}__"
    parameters = _parameters(row.get("input_schema", row.get("parameters")))
    return ToolProfile(
        name=name,
        bare_name=_text(row, "bare_name", place) or (name.removeprefix(prefix) if server else name),
        server=server,
        server_description=_text(row, "server_description", place),
        description=_text(row, "description", place),
        parameters=tuple(parameters),
        parameter_descriptions=tuple(said for said in parameters.values() if said),
    )


def _parameters(schema: object) -> dict[str, str]:
    """Names and descriptions, from a JSON schema, a list of parameters, lists by kind, or a mapping by name."""
    if isinstance(schema, str):
        return _parameters(_written_lists(schema))
    if isinstance(schema, list):
        return {str(item["name"]): _said(item) for item in schema if isinstance(item, dict) and "name" in item}
    if not isinstance(schema, dict):
        return {}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        return {str(name): _said(item) for name, item in properties.items()}
    lists = [schema.get(kind) for kind in ("required", "optional")]
    if all(isinstance(items, list) for items in lists):
        return {name: said for items in lists for name, said in _parameters(items).items()}
    return {str(name): _said(item) for name, item in schema.items() if isinstance(item, dict)}


def _written_lists(text: str) -> list[Any]:
    """The items of `required [...] optional [...]`."""
    items: list[Any] = []
    for kind in ("required ", "optional "):
        _, found, rest = text.partition(f"{kind}[")
        try:
            items += json.JSONDecoder().raw_decode(f"[{rest}")[0] if found else []
        except ValueError:
            continue
    return items


def _said(item: object) -> str:
    said = item.get("description") if isinstance(item, dict) else None
    return said if isinstance(said, str) else ""
