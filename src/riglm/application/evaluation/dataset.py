"""Evaluation data: a catalogue and requests with the tools that answer them, as JSON lines."""

import hashlib
import json
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from riglm.application.json_lines import InvalidLineError, JsonRow, UnreadableFileError, numbered_lines, object_of
from riglm.domain.errors import UnusableInputError
from riglm.domain.tool import ToolProfile


class DatasetError(UnusableInputError):
    """Evaluation data is missing or not as it must be. The message names the file, the line and the fix."""


def rows(path: Path, *, key: str) -> Iterator[tuple[JsonRow, str]]:
    """Yield each JSON object of a file with its location for messages; empty lines are skipped.

    Every object has a text under `key`, which no other has.

    Raises:
        DatasetError: the file cannot be read, or a line is not what it must be.
    """
    seen: dict[str, int] = {}
    for number, line in _lines(path):
        place = f"{path}:{number}"
        row = _object(line, place)
        name = text_of(row, key, place, needed=True)
        first = seen.setdefault(name, number)
        if first != number:
            raise DatasetError(
                f"{place}: {key!r} is {reprlib.repr(name)} as on line {first} — fix: no two may be the same"
            )
        yield row, place


def text_of(row: JsonRow, key: str, place: str, *, needed: bool = False) -> str:
    """The text under a key; empty when there is none.

    Raises:
        DatasetError: there is something else, or nothing where something is `needed`.
    """
    value = row.get(key)
    if isinstance(value, str) and (value or not needed):
        return value
    if value is None and not needed:
        return ""
    raise wrong(place, key, "a text", value, f'write "{key}": "..."')


def group_of(row: JsonRow, place: str) -> str:
    """The group that a row belongs to, which stays together when rows are split; empty for none.

    Raises:
        DatasetError: it is neither a text nor a number.
    """
    value = row.get("group") or ""
    if isinstance(value, str | int | float):
        return str(value)
    raise wrong(place, "group", "a text", value, 'write "group": "..." or remove it')


def name_list(value: object, key: str, place: str) -> list[str]:
    """A list of names.

    Raises:
        DatasetError: it is something else.
    """
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return value
    raise wrong(place, key, "a list of names", value, f'write "{key}": ["name", ...]')


def wrong(place: str, key: str, expected: str, value: object, fix: str) -> DatasetError:
    """The error for a value that is not what it must be."""
    found = "and is missing" if value is None else f"not {reprlib.repr(value)}"
    return DatasetError(f"{place}: {key!r} must be {expected}, {found} — fix: {fix}")


def unknown_tool(place: str, key: str, name: str) -> DatasetError:
    """The error for a tool that the catalogue does not have."""
    return DatasetError(f"{place}: unknown tool {reprlib.repr(name)} in {key!r} — fix: a name of tools.jsonl")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        yield from numbered_lines(path)
    except UnreadableFileError as error:
        raise DatasetError(str(error)) from error


def _object(line: bytes, place: str) -> JsonRow:
    try:
        return object_of(line)
    except InvalidLineError as error:
        raise DatasetError(f"{place}: {error}") from error


CATALOGUE: Final = "tools.jsonl"
"""The file that makes a directory a set."""


def find_sets(data: Path, names: Sequence[str] = (), *, side: str, file: str) -> list[Path]:
    """The directories of the named sets, each once; without names all that have the file on this side.

    `data` is the directory of sets, or the directory of one set, which is then the only one.

    Raises:
        DatasetError: there is no such directory or side, no set in it, or none of a name.
    """
    if Path(side).name != side or side in {"", ".."}:
        raise DatasetError(f"--side: {side!r} cannot be the name of a directory — fix: a side like dev")
    known = _sets_in(data)
    if not known:
        raise DatasetError(
            f"{data}: no set in it, which is a directory with {CATALOGUE} — fix: give --data the directory of sets, or "
            "that of one set"
        )
    wanted = list(dict.fromkeys(name.rstrip("/") for name in names))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise DatasetError(f"{data}: no set is called {unknown[0]!r} — fix: one of {', '.join(known)}")
    found = [known[name] for name in wanted or known]
    having = [directory for directory in found if (directory / side / file).exists()]
    missing = [directory for directory in found if directory not in having]
    if not having or (wanted and missing):
        place = missing[0] if wanted or len(found) == 1 else data
        raise DatasetError(f"{place}: no set with {side}/{file} — fix: {_other_side(missing, side, file)}")
    return having


def _sets_in(data: Path) -> Mapping[str, Path]:
    try:
        if (data / CATALOGUE).exists():
            own = data if data.name not in {"", ".."} else data.resolve()
            return {own.name: own}
        inside = sorted(data.iterdir())
        return {path.name: path for path in inside if (path / CATALOGUE).exists()}
    except OSError as error:
        raise DatasetError(f"{data}: {error.strerror} — fix: name a directory of sets with --data") from error


def _other_side(directories: Iterable[Path], side: str, file: str) -> str:
    there = sorted({path.parent.name for directory in directories for path in directory.glob(f"*/{file}")} - {side})
    return f"--side {' or '.join(there)}" if there else "other sets, which have such a file"


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


def _query(row: JsonRow, columns: Mapping[str, int], place: str) -> Query:
    wording = text_of(row, "query", place, needed=True)
    return Query(id=row["id"], text=wording, group=group_of(row, place), gold=tuple(_gold(row, columns, place)))


def _gold(row: JsonRow, columns: Mapping[str, int], place: str) -> Iterator[tuple[int, ...]]:
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


def _profile(row: JsonRow, place: str) -> ToolProfile:
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
