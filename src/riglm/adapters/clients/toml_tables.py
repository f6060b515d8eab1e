"""Tables in a TOML file, changed in the text: nothing else in it changes.

A table is all the lines that define something of it, under its headers or as keys of another table. Comments and
blank lines between tables belong to none of them, and stay.
"""

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from riglm.adapters.clients.json_members import FileNotEditableError, behind_whom, stands_behind

_TOKEN: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}\n]', re.DOTALL
)
_KEY_PART: Final = re.compile(r'\s*("(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|[A-Za-z0-9_-]+)\s*(\.|=|\]|$)')
_BLANK_LINES: Final = re.compile(r"(?:[ \t]*\r?\n)*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")

TomlPath = Sequence[str]


@dataclass(frozen=True, slots=True)
class _Statement:
    """A header, or a key with its value: where its lines begin and end, and the path that it is about."""

    start: int
    end: int
    path: tuple[str, ...]
    is_header: bool
    depth: int
    """Return how many parts of the path come from the header above it."""


def values(text: str) -> dict[str, Any]:
    """What the text says.

    Raises:
        FileNotEditableError: it is no TOML, which includes keys that occur twice.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileNotEditableError(f"this is not TOML ({error})") from None
    except RecursionError:
        raise FileNotEditableError("the values are nested too deeply") from None


def moved(text: str, path: TomlPath, names: Collection[str], entry: tuple[str, Mapping[str, Any]] | None) -> str:
    """The text without these tables below a path, and with another in the place of the first of them."""
    leaving = _about(text, path, names)
    instead = ""
    if entry is not None and leaving:
        instead = _written(text, leaving[0], (*path, entry[0]), entry[1])
    return _changed(text, leaving, instead)


def with_members(text: str, path: TomlPath, members: Mapping[str, Any], removed: Collection[str]) -> str:
    """The text with these keys in a table and without the removed ones; a table without a header is written again."""
    new = text
    for key, value in {**dict.fromkeys(removed), **members}.items():
        new = _with_value(new, (*path, key), value)
    *outer, name = path
    there = _tables_at(text, path)
    wanted = {key: value for key, value in there.items() if key not in removed} | dict(members)
    return new if _tables_at(new, path) == wanted else moved(text, outer, [name], (name, wanted))


def _with_value(text: str, path: TomlPath, value: Any) -> str:
    """The text with a key set to a value if its table has a header; None removes the key."""
    statements = list(_statements(text))
    known = next((each for each in statements if each.path == tuple(path) and not each.is_header), None)
    header = next((each for each in statements if each.path == tuple(path[:-1]) and each.is_header), None)
    place = known or (header if value is not None else None)
    if place is None:
        return text
    written = _dotted(path[place.depth :])
    line = "" if value is None else f"{written} = {_value(value)}{_newline(text)}"
    start = place.start if place is known else place.end
    return (_ended(text[:start]) if start else "") + line + text[place.end :]


def put_back(text: str, path: TomlPath, entry: str | None, before: str, names: Collection[str]) -> str:
    """The text with tables of another version of it, each where it was among those that stayed.

    The table of this name is removed, and replaced by the given ones. Where the tables cannot be written as they
    were, they come at the end.
    """
    were, are = _tables_at(before, path), _tables_at(text, path)
    staying = {name: table for name, table in are.items() if name != entry}
    returning = {name: table for name, table in were.items() if name in names}
    found = _in_their_places(text, path, entry, before, behind_whom([*were], names, staying))
    if found and _tables_at(found, path) == staying | returning:
        return found
    newline = _newline(text)
    rest = _changed(text, _about(text, path, () if entry is None else [entry]), "")
    rest += newline if rest and not rest.endswith("\n") else ""
    return rest + "".join(newline + _table((*path, name), table, newline) for name, table in returning.items())


def _in_their_places(
    text: str, path: TomlPath, entry: str | None, before: str, groups: dict[str | None, list[str]]
) -> str:
    """The text with these tables behind others, as another version of it has them; nothing where no place is left."""
    are = [*_tables_at(text, path)]
    if entry in are:
        instead = groups.pop(stands_behind(entry, are, _tables_at(before, path)), [])
        text = _changed(text, _about(text, path, [entry]), _copied(before, path, instead))
        are.remove(entry)
    for behind, group in groups.items():
        near = _about(text, path, are if behind is None else [behind])
        if not near:
            return ""
        pieces, gap = _copied(before, path, group), _newline(text) if near[0].is_header else ""
        if behind is None:
            place, new = near[0].start, pieces + gap
        else:
            place, new = near[-1].end, gap + pieces
        text = (_ended(text[:place]) if place else "") + new + text[place:]
    return text


def _copied(text: str, path: TomlPath, names: Collection[str]) -> str:
    """The lines about some tables."""
    return _newline(text).join(_ended(text[start:end]) for start, end in _pieces(text, _about(text, path, names)))


def _tables_at(text: str, path: TomlPath) -> dict[str, Any]:
    """The tables below a path; none where they cannot be read."""
    try:
        found: Any = values(text)
        for key in path:
            found = found[key]
    except (FileNotEditableError, KeyError, TypeError):
        return {}
    return dict(found) if isinstance(found, Mapping) else {}


def _ended(lines: str) -> str:
    return lines if lines.endswith("\n") else lines + _newline(lines)


def _changed(text: str, leaving: Sequence[_Statement], instead: str) -> str:
    """Return the text with the first removed lines replaced, if there is a replacement, and the others deleted."""
    pieces = list(_pieces(text, leaving))
    for number, (start, end) in reversed(list(enumerate(pieces))):
        new = "" if number else instead
        text = text[:start] + new + text[end if new else _after_blank_lines(text, end) :]
    return text


def _pieces(text: str, statements: Sequence[_Statement]) -> Iterator[tuple[int, int]]:
    """The statements, with those taken together that have nothing but blank lines between them."""
    piece: tuple[int, int] | None = None
    for statement in statements:
        if piece is not None and text[piece[1] : statement.start].strip():
            yield piece
            piece = None
        piece = (piece[0] if piece else statement.start, statement.end)
    if piece is not None:
        yield piece


def _after_blank_lines(text: str, place: int) -> int:
    found = _BLANK_LINES.match(text, place)
    return found.end() if found else place


def _about(text: str, path: TomlPath, names: Collection[str]) -> list[_Statement]:
    """The statements that say something of these tables.

    Raises:
        FileNotEditableError: they are all in one value, which says something of others as well.
    """
    depth = len(path)
    found = []
    for statement in _statements(text):
        if statement.path[:depth] == tuple(path)[: len(statement.path)] and len(statement.path) <= depth:
            if not statement.is_header:
                raise FileNotEditableError(f"all of `{'.'.join(path)}` is written in one value")
        elif statement.path[:depth] == tuple(path) and statement.path[depth] in names:
            found.append(statement)
    return found


def _statements(text: str) -> Iterator[_Statement]:
    header: tuple[str, ...] = ()
    for start, end in _logical_lines(text):
        line = text[start:end].strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            header = _key(line.lstrip("["))
            yield _Statement(start, end, header, True, len(header))
        else:
            yield _Statement(start, end, (*header, *_key(line)), False, len(header))


def _logical_lines(text: str) -> Iterator[tuple[int, int]]:
    """Where each line begins and ends; one with an open bracket or text goes on in the next."""
    start = depth = 0
    for found in _TOKEN.finditer(text):
        mark = found.group()
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark, 0)
        if mark == "\n" and depth <= 0:
            yield start, found.end()
            start, depth = found.end(), 0
    if start < len(text):
        yield start, len(text)


def _key(line: str) -> tuple[str, ...]:
    parts, place = [], 0
    while found := _KEY_PART.match(line, place):
        parts.append(next(iter(tomllib.loads(f"{found[1]} = 0"))))
        if found[2] != ".":
            return tuple(parts)
        place = found.end()
    raise FileNotEditableError(f"this is not a key: {line[:40]}")


def _written(text: str, place: _Statement, path: TomlPath, table: Mapping[str, Any]) -> str:
    newline = _newline(text)
    if place.is_header:
        return _table(path, table, newline)
    return f"{_dotted(path[place.depth :])} = {_value(table)}{newline}"


def _table(path: TomlPath, table: Mapping[str, Any], newline: str) -> str:
    return newline.join(
        [f"[{_dotted(path)}]", *(f"{_dotted([key])} = {_value(item)}" for key, item in table.items()), ""]
    )


def _dotted(path: TomlPath) -> str:
    return ".".join(part if _BARE.fullmatch(part) else _value(part) for part in path)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_dotted([key])} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str | bool | int):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
