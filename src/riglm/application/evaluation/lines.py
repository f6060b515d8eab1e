"""JSON lines of evaluation data: read one by one, and refused by file, line, reason and fix."""

import reprlib
from collections.abc import Iterator
from pathlib import Path

from riglm.application.json_lines import BadLine, Row, UnusableFile, numbered_lines, object_of
from riglm.domain.errors import UnusableInput


class DatasetError(UnusableInput):
    """Evaluation data is missing or not as it must be. The message names the file, the line and the fix."""


def rows(path: Path, *, key: str) -> Iterator[tuple[Row, str]]:
    """Each JSON object of a file, and the place that it stands in for messages; empty lines are skipped.

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


def text_of(row: Row, key: str, place: str, *, needed: bool = False) -> str:
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


def group_of(row: Row, place: str) -> str:
    """The group that a row belongs to, which stays together when rows are split; empty for none.

    Raises:
        DatasetError: it is neither a text nor a number.
    """
    value = row.get("group") or ""
    if isinstance(value, str | int | float):
        return str(value)
    raise wrong(place, "group", "a text", value, 'write "group": "..." or leave it away')


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
    except UnusableFile as error:
        raise DatasetError(str(error)) from error


def _object(line: bytes, place: str) -> Row:
    try:
        return object_of(line)
    except BadLine as error:
        raise DatasetError(f"{place}: {error}") from error
