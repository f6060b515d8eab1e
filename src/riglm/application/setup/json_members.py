"""Members of an object in JSON with comments, replaced in the text: nothing else in it changes.

Each change touches the text of the members that it is about, and no more: comments, spare commas, indentation, escapes
and the order of keys stay as their owner wrote them.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from riglm.domain.client_setup import plain_json
from riglm.domain.errors import ConfigurationError


class FileNotEditableError(ConfigurationError):
    """The file is not what its client reads, or is written in a way that only people can change; see the text."""


_STRING: Final = r'"(?:\\.|[^"\\\n])*"'
_SPACE: Final = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_KEY: Final = re.compile(_STRING)
_SKIPPED: Final = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/|[{{}}\[\]]", re.DOTALL)
_SIMPLE: Final = re.compile(r'[^\s,\]}"/]+')
_REST_OF_LINE: Final = re.compile(r"(?:[ \t]*(?://[^\r\n]*|/\*(?:[^*\r\n]|\*(?!/))*\*/))*[ \t]*(?=\r?\n)")

JsonPath = Sequence[str]


@dataclass(frozen=True, slots=True)
class _Member:
    """One key with its value: their positions, and that of the comma behind them, if there is one."""

    key: str
    start: int
    value: int
    end: int
    comma: int | None


@lru_cache(maxsize=4)  # one file may hold the servers of many projects
def parse(text: str) -> dict[str, Any]:
    """Return the content.

    Raises:
        FileNotEditableError: it is no JSON, not even with comments, or holds no keys, or one of them twice in one
        object.
    """
    try:
        try:
            found = json.loads(text, object_pairs_hook=_once_each)
        except json.JSONDecodeError:
            found = json.loads(plain_json(text), object_pairs_hook=_once_each)
    except json.JSONDecodeError as error:
        raise FileNotEditableError(
            f"line {error.lineno}, column {error.colno}: this is not JSON ({error.msg})"
        ) from None
    except RecursionError:
        raise FileNotEditableError("the values are nested too deeply") from None
    if not isinstance(found, dict):
        raise FileNotEditableError("it does not hold keys with values")
    return found


def replace_entries(
    text: str, path: JsonPath, names: Collection[str], entry: tuple[str, Mapping[str, Any]] | None
) -> str:
    """Return the text without these members of the object at a path, and with another in the place of the first."""
    members = _members_at(text, path)
    leaving = [member for member in members if member.key in names]
    instead = _written(text, leaving[0], *entry) if entry is not None and leaving else ""
    return _changed(text, members, leaving, instead)


def restore_entries(text: str, path: JsonPath, entry: str | None, before: str, names: Collection[str]) -> str:
    """Return the text with members of an earlier version of it in the place of an entry, or behind all others.

    If the object is as `replace_entries` made it, it becomes what it was.
    """
    members = _members_at(text, path)
    ours = [member for member in members if member.key == entry]
    if ours:
        value = json.loads(plain_json(text[ours[0].value : ours[0].end]))
        now, earlier = _source(text, path), _source(before, path)
        if entry is not None and _source(replace_entries(before, path, names, (entry, value)), path) == now:
            place = _object_at(text, path)
            return text[:place] + earlier + text[place + len(now) :]
    pieces = [before[member.start : member.end] for member in _members_at(before, path) if member.key in names]
    if not ours:
        return _appended(text, path, pieces)
    return _changed(text, members, ours, ("," + _gap(text, ours[0].start)).join(pieces))


def set_members(text: str, path: JsonPath, members: Mapping[str, Any], removed: Collection[str]) -> str:
    """Return the text with these members at the end of an object, and without those of removed or equal names."""
    text = replace_entries(text, path, {*members, *removed}, None)
    pieces = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in members.items()]
    return _appended(text, path, pieces) if pieces else text


def _source(text: str, path: JsonPath) -> str:
    """Return the text of the object at a path."""
    place = _object_at(text, path)
    return text[place : _end_of_value(text, place)]


def _appended(text: str, path: JsonPath, pieces: Sequence[str]) -> str:
    """Return the text with more members at the end of an object, behind a comment in the line of the last one."""
    members = _members_at(text, path)
    if not members:
        place = _object_at(text, path) + 1
        return text[:place] + ", ".join(pieces) + text[place:]
    last = members[-1]
    gap = _gap(text, last.start)
    new = ",".join(gap + piece for piece in pieces)
    end = last.end if last.comma is None else last.comma + 1
    remark = _REST_OF_LINE.match(text, end) if "\n" in gap else None
    place = remark.end() if remark else end
    if last.comma is None:
        return text[:end] + "," + text[end:place] + new + text[place:]
    return text[:place] + new + "," + text[place:]


def _changed(text: str, members: Sequence[_Member], leaving: Sequence[_Member], instead: str) -> str:
    """Return the text with the first removed span replaced, if there is a replacement, and the others deleted."""
    staying = [member for member in members if member not in leaving or (instead and member is leaving[0])]
    edits: list[tuple[int, int, str]] = []
    if instead:
        edits.append((leaving[0].start, leaving[0].end, instead))
    for member in leaving[1 if instead else 0 :]:
        end = member.end if member.comma is None else member.comma + 1
        edits.append((*_with_its_line(text, member.start, end), ""))
    if leaving and leaving[-1] is members[-1] and leaving[-1] not in staying and leaving[-1].comma is None and staying:
        comma = staying[-1].comma
        if comma is not None:
            edits.append((comma, comma + 1, ""))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _with_its_line(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span, extended to whole lines if they contain nothing else."""
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", end)
    is_alone = not text[first:start].strip() and last >= 0 and not text[end:last].strip()
    if is_alone:
        return first, last + 1
    while end < len(text) and text[end] in " \t":
        end += 1
    return start, end


def _members_at(text: str, path: JsonPath) -> list[_Member]:
    return list(_members(text, _object_at(text, path)))


def _object_at(text: str, path: JsonPath) -> int:
    place = _after_space(text, 0)
    for key in path:
        found = next((member for member in _members(text, place) if member.key == key), None)
        if found is None:
            raise FileNotEditableError(f"there is no {'.'.join(path)} any more")
        place = found.value
    return place


def _members(text: str, place: int) -> Iterator[_Member]:
    if text[place : place + 1] != "{":
        raise FileNotEditableError("there are no keys with values where servers are looked for")
    place = _after_space(text, place + 1)
    while text[place] != "}":
        name = _KEY.match(text, place)
        if name is None:
            raise FileNotEditableError("this is not JSON")
        value = _after_space(text, _after_space(text, name.end()) + 1)
        end = _end_of_value(text, value)
        behind = _after_space(text, end)
        has_comma = text[behind] == ","
        yield _Member(json.loads(name.group()), place, value, end, behind if has_comma else None)
        place = _after_space(text, behind + 1) if has_comma else behind


def _end_of_value(text: str, place: int) -> int:
    if text[place] == '"':
        found = _KEY.match(text, place)
    elif text[place] not in "{[":
        found = _SIMPLE.match(text, place)
    else:
        depth = 0
        for mark in _SKIPPED.finditer(text, place):
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(mark.group(), 0)
            if not depth:
                return mark.end()
        found = None
    if found is None:
        raise FileNotEditableError("this is not JSON")
    return found.end()


def _after_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place


def _written(text: str, place: _Member, name: str, value: Mapping[str, Any]) -> str:
    """Return a new member as its neighbors are written: over several lines and indented alike, or all in one."""
    gap = _gap(text, place.start)
    key = json.dumps(name, ensure_ascii=False) + ": "
    if "\n" not in gap:
        return key + json.dumps(value, ensure_ascii=False)
    step = "\t" if "\t" in gap else "  "
    lines = [f"{json.dumps(each)}: {json.dumps(item, ensure_ascii=False)}" for each, item in value.items()]
    return key + "{" + gap + step + f",{gap}{step}".join(lines) + gap + "}"


def _gap(text: str, start: int) -> str:
    """Return what separates two members: a line break and the indentation, or a space."""
    first = text.rfind("\n", 0, start) + 1
    indent = text[first:start]
    if not first or indent.strip():
        return " "
    return ("\r\n" if text[:first].endswith("\r\n") else "\n") + indent


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise FileNotEditableError(f"the key {twice!r} occurs twice in one object: keep one of them")
    return found
