"""Reading configuration files: YAML, and JSON with comments."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from riglm.domain.schemas.problems import ConfigProblem, refusal

_MAX_FILE = 4 * 1024 * 1024
_STRING = r'"(?:\\.|[^"\\\n])*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_STRUCTURE = re.compile(rf"{_STRING}(?P<key>\s*:)?|[{{}}\[\]]")


@dataclass(frozen=True, slots=True)
class Document:
    """A file's values, and its duplicate keys."""

    source: str
    values: dict[str, Any]
    problems: tuple[ConfigProblem, ...] = ()


def read(file: Path) -> Document:
    """The values of a `.json` file or else of a YAML file; ConfigurationError when there is no reading it."""
    source = str(file)
    text = _text(file, source)
    values, problems = _read_json(text, source) if file.suffix == ".json" else _read_yaml(text, source)
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise refusal(source, "", "the file does not hold keys with values", "write `key: value` at the top")
    return Document(source, values, tuple(problems))


def _text(file: Path, source: str) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(_MAX_FILE + 1)
        if len(raw) > _MAX_FILE:
            raise refusal(source, "", "the file is larger than 4 MiB", "name the right file")
        return raw.decode("utf-8-sig")
    except FileNotFoundError:
        raise refusal(source, "", "there is no such file", "create it, or name another") from None
    except OSError as error:
        what = f"the file cannot be read ({error.strerror})"
        raise refusal(source, "", what, "name a file that you may read") from None
    except UnicodeDecodeError as error:
        raise refusal(source, f"byte {error.start}", "the file is not UTF-8", "save it as UTF-8") from None


def _read_yaml(text: str, source: str) -> tuple[Any, list[ConfigProblem]]:
    import yaml

    problems: list[ConfigProblem] = []

    class Loader(yaml.SafeLoader):
        """Notes each duplicate key of a mapping."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                    continue
                if key.value in seen:
                    problems.append(_twice(source, key.value, key.start_mark.line + 1))
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader), problems  # noqa: S506  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = f"this is not YAML ({error.problem})"
        raise refusal(source, place, what, "mind the indentation and the quotes") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        what = f"this is not YAML ({type(error).__name__})"
        raise refusal(source, "", what, "mind unusual characters and depth") from None


def _read_json(text: str, source: str) -> tuple[Any, list[ConfigProblem]]:
    plain = _LAST_COMMA.sub(_blank, _COMMENT.sub(_blank, text))
    try:
        values = json.loads(plain)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        what = f"this is not JSON ({error.msg})"
        raise refusal(source, place, what, "mind the commas, quotes and brackets") from None
    except (ValueError, RecursionError) as error:
        what = f"this is not JSON that riglm reads ({type(error).__name__})"
        raise refusal(source, "", what, "mind long numbers and depth") from None
    return values, [_twice(source, key, line) for key, line in _keys_twice(plain)]


def _blank(found: re.Match[str]) -> str:
    text = found.group()
    # Line breaks stay, so that errors name the line that the user sees.
    return text if text.startswith('"') else re.sub(r"[^\n]", " ", text)


def _keys_twice(text: str) -> Iterator[tuple[str, int]]:
    open_objects: list[set[str]] = []
    for found in _STRUCTURE.finditer(text):
        mark = found.group()
        if mark in "{[":
            open_objects.append(set())
        elif mark in "}]":
            open_objects.pop()
        elif found["key"]:
            key = json.loads(mark[: -len(found["key"])])
            if key in open_objects[-1]:
                yield key, text.count("\n", 0, found.start()) + 1
            open_objects[-1].add(key)


def _twice(source: str, key: str, line: int) -> ConfigProblem:
    return ConfigProblem(source, f"line {line}", f"the key `{key}` occurs twice in one place", "keep one of them")
