"""Changes to the text of a plain JSON file, which keeps its order and its indentation."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from riglm.adapters.configuration.yaml_text import YamlNotEditableError

_INDENT: Final = re.compile(r"\{\r?\n(?P<indent>[ \t]+)\"")


def source_of(text: str, path: Sequence[str]) -> str:
    """The text of the value at a path; empty when there is none."""
    here: Any = _read(text)
    for key in path:
        here = here.get(key) if isinstance(here, dict) else None
    return "" if here is None else json.dumps(here)


def with_value(text: str, path: Sequence[str], value: Any) -> str:
    """The text with another value at a path; sections that are missing are added."""
    values = _read(text)
    here = values
    for key in path[:-1]:
        if not isinstance(here.get(key), dict):
            here[key] = {}
        here = here[key]
    here[path[-1]] = value
    return _written(values, text)


def without(text: str, path: Sequence[str]) -> str:
    """The text without the value at a path and its key."""
    values = _read(text)
    here: Any = values
    for key in path[:-1]:
        here = here.get(key) if isinstance(here, dict) else None
    if isinstance(here, dict):
        here.pop(path[-1], None)
    return _written(values, text)


def _read(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError:
        raise YamlNotEditableError("it is JSON with comments or spare commas, which would be lost") from None
    if not isinstance(values, dict):
        raise YamlNotEditableError("it does not hold keys with values")
    return values


def _written(values: dict[str, Any], text: str) -> str:
    found = _INDENT.search(text)
    written = json.dumps(values, indent=found["indent"] if found else None, ensure_ascii=False)
    if "\r\n" in text:
        written = written.replace("\n", "\r\n")
    return written + text[len(text.rstrip()) :]
