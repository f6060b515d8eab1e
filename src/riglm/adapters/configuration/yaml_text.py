"""Changes to the text of a YAML file: what is not changed stays as it is, to the byte.

A parser returns the position of each value, and only that place is rewritten. To read a file and write it again would
lose indentation, alignment and the places of comments.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import yaml

from riglm.domain.errors import ConfigurationError


class YamlNotEditableError(ConfigurationError):
    """The file is written in a way that only people can change; the text names the obstacle."""


YamlPath = Sequence[str]

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_TEXT: Final = "tag:yaml.org,2002:str"
_STEP: Final = 2  # where the file does not show how far it indents
_MAX_EXACT: Final = 1e15


class _Style(NamedTuple):
    """How a file ends its lines, and by how many columns it indents."""

    newline: str
    step: int


def source_of(text: str, path: YamlPath) -> str:
    """The text of the value at a path; empty when there is none."""
    node: yaml.Node | None = _composed(text)
    for key in path:
        pair = _pair(node, key)
        if pair is None:
            return ""
        node = pair[1]
    return "" if node is None else text[node.start_mark.index : _end(node)]


def with_value(text: str, path: YamlPath, value: Any) -> str:
    """The text with another value at a path; sections that are missing are added.

    Raises:
        YamlNotEditableError: the place cannot be found or changed, such as an alias.
    """
    root = _composed(text)
    if root is None:
        return _appended(text, len(text.rstrip()), _entry(path[0], _nested(path[1:], value), 0, _style(text)))
    node: yaml.Node = root
    for place, key in enumerate(path):
        pair = _pair(node, key)
        rest = path[place + 1 :]
        if pair is None:
            return _with_entry(text, _mapping(node), key, _nested(rest, value))
        if not rest:
            return _replaced(text, pair, value)
        if not isinstance(pair[1], yaml.MappingNode):
            return _replaced(text, pair, _nested(rest, value))
        node = pair[1]
    return text


def without(text: str, path: YamlPath) -> str:
    """The text without the value at a path and its key, and without a section that said nothing else.

    The text as it is when there is no such value.
    """
    node: yaml.Node | None = _composed(text)
    found: list[tuple[yaml.Node, tuple[yaml.Node, yaml.Node]]] = []
    for key in path:
        pair = _pair(node, key)
        if pair is None or node is None:
            return text
        found.append((node, pair))
        node = pair[1]
    while len(found) > 1 and _is_all_of_its_section(text, found[-2][1], found[-1]):
        found.pop()
    holder, pair = found[-1]
    return _without_entry(text, _mapping(holder), pair)


def _is_all_of_its_section(
    text: str, section: tuple[yaml.Node, yaml.Node], entry: tuple[yaml.Node, tuple[yaml.Node, yaml.Node]]
) -> bool:
    """Whether a section says nothing else than this entry, not even to people."""
    holder, (name, _) = entry
    before = text[section[0].end_mark.index : name.start_mark.index]
    return len(_mapping(holder).value) == 1 and "#" not in before


def _composed(text: str) -> yaml.MappingNode | None:
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise YamlNotEditableError("the file is not YAML") from error
    return None if root is None else _mapping(root)


def _mapping(node: yaml.Node) -> yaml.MappingNode:
    if not isinstance(node, yaml.MappingNode):
        raise YamlNotEditableError("the file does not hold keys with values there")
    return node


def _pair(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    for name, value in node.value:
        if isinstance(name, yaml.ScalarNode) and name.value == key:
            if value.start_mark.index < name.end_mark.index:
                raise YamlNotEditableError(f"`{key}` refers to a value elsewhere in the file")
            return name, value
    return None


def _replaced(text: str, pair: tuple[yaml.Node, yaml.Node], value: Any) -> str:
    name, old = pair
    start, end = old.start_mark.index, _end(old)
    if isinstance(old, yaml.SequenceNode) and not old.flow_style:
        return _with_items(text, pair, value)
    if start == end:  # `key:` and nothing behind it
        if isinstance(value, dict) and value and "\n" not in text[name.end_mark.index : start]:
            return _appended(text, start, _lines(value, name.start_mark.column, _style(text)))
        return f"{text[:start]} {_flow(value)}{text[start:]}"
    style = old.style if isinstance(old, yaml.ScalarNode) and old.style in {"'", '"'} else None
    written = _scalar(value, style) if isinstance(value, str) else _flow(value)
    return text[:start] + written + text[end:]


def _with_items(text: str, pair: tuple[yaml.Node, yaml.Node], value: Any) -> str:
    """A block sequence with other items, those that stay with their lines and comments; or something else instead."""
    name, old = pair
    wanted = value if isinstance(value, list) else []
    items = [(item.value if item.tag == _TEXT else None, item) for item in old.value]
    staying = [item for item, _ in items if item in wanted]
    if wanted[: len(staying)] != staying or len(set(staying)) != len(staying):
        staying = []
    if added := wanted[len(staying) :]:
        dash = " " * old.start_mark.column + "- "
        text = _appended(text, _end(old), _newline(text).join(dash + _flow(item) for item in added))
    for item, node in reversed(items):
        if item not in staying:
            text = _without_line(text, node.start_mark.index, _end(node), before="-")
    colon = text.index(":", name.end_mark.index) + 1
    return text if wanted else f"{text[:colon]} {_flow(value)}{text[colon:]}"


def _with_entry(text: str, node: yaml.MappingNode, key: str, value: Any) -> str:
    if node.flow_style or not node.value:
        written = f"{_flow(key)}: {_flow(value)}"
        if node.value:
            end = _end(node.value[-1][1])
            return f"{text[:end]}, {written}{text[end:]}"
        start = node.start_mark.index + 1
        return text[:start] + written + text[start:]
    column = node.value[0][0].start_mark.column
    return _appended(text, _end(node), _entry(key, value, column, _style(text)))


def _without_entry(text: str, node: yaml.MappingNode, pair: tuple[yaml.Node, yaml.Node]) -> str:
    start, end = pair[0].start_mark.index, max(_end(pair[1]), pair[0].end_mark.index + 1)
    if not node.flow_style:
        return _without_line(text, start, end)
    place = node.value.index(pair)
    if place + 1 < len(node.value):
        end = node.value[place + 1][0].start_mark.index
    elif place:
        start = _end(node.value[place - 1][1])
    return text[:start] + text[end:]


def _without_line(text: str, start: int, end: int, before: str = "") -> str:
    first = text.rfind("\n", 0, start) + 1
    if text[first:start].strip(" ") != before:
        raise YamlNotEditableError("several values are in one line of the file")
    return text[:first] + text[_line_end(text, end) :].removeprefix("\r").removeprefix("\n")


def _appended(text: str, place: int, lines: str) -> str:
    """The text with lines after the one that the place is in."""
    end = _line_end(text, place)
    newline = _newline(text)
    if not text[:end].strip():
        return text[:end] + lines + (text[end:] or newline)
    return text[:end] + newline + lines + (text[end:] or newline)


def _line_end(text: str, place: int) -> int:
    end = text.find("\n", place)
    end = len(text) if end < 0 else end
    return end - 1 if text[place:end].endswith("\r") else end


def _end(node: yaml.Node) -> int:
    """Where a value ends; what follows it before the next one is not a part of it."""
    start, end = node.start_mark.index, node.end_mark.index
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        name, inner = last if isinstance(last, tuple) else (None, last)
        if not start <= inner.start_mark.index <= end:
            raise YamlNotEditableError("a section of the file ends with what is written elsewhere in it")
        return max(_end(inner), name.end_mark.index + 1 if name is not None else 0)
    return start + len((node.start_mark.buffer or "")[start:end].rstrip())


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _style(text: str) -> _Style:
    root = _composed(text)
    if root is None:
        return _Style(_newline(text), _STEP)
    inner = [value for _, value in root.value if isinstance(value, yaml.MappingNode) and not value.flow_style]
    steps = Counter(value.start_mark.column - root.start_mark.column for value in inner)
    del steps[0]
    return _Style(_newline(text), max(steps, key=lambda step: (steps[step], -step), default=_STEP))


def _nested(path: YamlPath, value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _entry(key: str, value: Any, column: int, style: _Style) -> str:
    if isinstance(value, dict) and value:
        return f"{' ' * column}{_flow(key)}:{style.newline}{_lines(value, column, style)}"
    return f"{' ' * column}{_flow(key)}: {_flow(value)}"


def _lines(values: dict[str, Any], column: int, style: _Style) -> str:
    """Return what is below a key in this column."""
    return style.newline.join(_entry(key, value, column + style.step, style) for key, value in values.items())


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str):
        return _scalar(value, None)
    if isinstance(value, float):
        return _number(value)
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n").removesuffix("\n...")


def _number(value: float) -> str:
    if math.isfinite(value) and value.is_integer() and abs(value) < _MAX_EXACT:
        return str(int(value))
    return yaml.safe_dump(value).removesuffix("\n").removesuffix("\n...")


def _scalar(value: str, style: str | None) -> str:
    if style is None and _PLAIN.fullmatch(value) and yaml.safe_load(value) == value:
        return value
    return yaml.safe_dump(value, default_style=style or '"', allow_unicode=True, width=math.inf).removesuffix("\n")
