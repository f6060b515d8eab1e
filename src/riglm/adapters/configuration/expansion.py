"""Variables: those in the texts of a configuration, and those of the environment that set its keys."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from riglm.domain.schemas.problems import TOP, ConfigProblem, IndexedKeyPath, SchemaNode, dotted, find_replacement

PREFIX = "RIGLM_"
"""What the names of all variables of riglm begin with."""

_NESTED = "__"
_OTHERS = frozenset({"token"})
"""Names of variables that set nothing: what a configuration calls `${RIGLM_TOKEN}`."""


def read_variables(
    environment: Mapping[str, str], servers: tuple[str, ...] = ()
) -> Iterator[tuple[str, IndexedKeyPath, Any] | ConfigProblem]:
    """Each variable that sets something: its name, the path that it sets, and the value; or what is wrong with it.

    `servers` are the names of the servers known from elsewhere, so that `RIGLM_MCPSERVERS__MY_DOCS__URL` finds
    `my-docs`. Empty variables set nothing. Lists are JSON or separated by commas, sections and maps are JSON.
    """
    for name in sorted(environment):
        text = environment[name]
        if not name.startswith(PREFIX) or not text:
            continue
        path, shape = _place(name.removeprefix(PREFIX).split(_NESTED), servers)
        if shape is not None:
            yield _setting(name, path, shape, text)
        elif path or _NESTED in name or _looks_like_a_setting(name.removeprefix(PREFIX).lower()):
            yield _unknown(name, path)


def _place(words: list[str], servers: tuple[str, ...]) -> tuple[IndexedKeyPath, SchemaNode | None]:
    path: list[str] = []
    shape: SchemaNode | None = TOP
    for index, word in enumerate(words):
        if shape is None or shape.form in {"list", "value"}:
            return tuple(path), None
        if shape.form == "map" and path[-1] != "mcpServers":
            return (*path, _key(path[-1], _NESTED.join(words[index:]))), shape.below("")
        choices = tuple(shape.keys) if shape.form == "section" else (*servers, word.lower())
        key = next((choice for choice in choices if _plain(choice) == _plain(word)), None)
        if key is None:
            return tuple(path), None
        path.append(key)
        shape = shape.below(key)
    return tuple(path), shape


def _key(map_name: str, word: str) -> str:
    return word.replace("_", "-") if map_name == "headers" else word


def _plain(word: str) -> str:
    return word.lower().replace("-", "_").replace(".", "_")


def _setting(
    name: str, path: IndexedKeyPath, shape: SchemaNode, text: str
) -> tuple[str, IndexedKeyPath, Any] | ConfigProblem:
    if shape.form == "value" or (path[-1] == "command" and not text.startswith("[")):
        return name, path, text
    if shape.form == "list" and not text.startswith("["):
        return name, path, [item.strip() for item in text.split(",")]
    try:
        return name, path, json.loads(text)
    except (ValueError, RecursionError):
        kind = "list" if shape.form == "list" else "object"
        return ConfigProblem(name, "", f"this is not a JSON {kind}", f"write it as JSON, or set {name}{_NESTED}KEY")


def _looks_like_a_setting(name: str) -> bool:
    """Whether a name of one level was meant for a setting: one word as all of them are, or one of them and more."""
    if not name or name in _OTHERS:
        return False
    known = [_plain(key) for key in TOP.keys]
    first, underscore, _ = name.partition("_")
    return not underscore or first in known or bool(get_close_matches(name, known, n=1, cutoff=0.8))


def _unknown(name: str, path: IndexedKeyPath) -> ConfigProblem:
    words = name.removeprefix(PREFIX).split(_NESTED)
    replacement = find_replacement(".".join(words).lower())
    if replacement is not None:
        return ConfigProblem(name, "", "this setting was removed", replacement)
    shape: SchemaNode | None = TOP
    for part in path:
        shape = shape.below(part) if shape else None
    choices = {_plain(key): key for key in (shape.keys if shape else {})}
    word = words[min(len(path), len(words) - 1)].lower()
    first, _, rest = word.partition("_")
    if not path and rest and first in choices:
        return ConfigProblem(
            name, "", "there is no such setting", f"did you mean {(PREFIX + first + _NESTED + rest).upper()}?"
        )
    close = get_close_matches(word, choices, n=1)
    known = [PREFIX + _NESTED.join([*map(str, path), choice]).upper() for choice in close or choices]
    fix = f"did you mean {known[0]}?" if close else f"known are {', '.join(known)}" if known else "remove it"
    return ConfigProblem(name, "", "there is no such setting", fix)


_DEEPEST = 32
_OURS = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_CLIENTS = re.compile(
    r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*|/|(?:input|command|config):[^}]*)(?::-(?P<default>[^}]*))?\}"
)


_EDITOR_PLACES: Mapping[str, Callable[[], Path | str]] = {
    "userHome": Path.home,
    "workspaceFolder": Path.cwd,
    "workspaceFolderBasename": lambda: Path.cwd().name,
    "pathSeparator": lambda: os.sep,
    "/": lambda: os.sep,
}


class Expansion:
    """Replaces variables in all texts below a value; what a variable holds is never expanded again.

    An unset or empty variable takes its default; one without a default is noted in `problems`. Keys stay as they are,
    and so does all that is disabled. `of_client` also takes `${env:VAR}` and what editors call folders and the
    separator of paths. `found` has the values of variables, by the paths of the texts that they were put into.
    """

    def __init__(self, source: str, environment: Mapping[str, str], *, of_client: bool = False) -> None:
        self.problems: list[ConfigProblem] = []
        self.found: dict[IndexedKeyPath, list[str]] = {}
        self.source = source
        self._pattern = _CLIENTS if of_client else _OURS
        self._environment = environment
        self._places = _EDITOR_PLACES if of_client else {}

    def __call__(self, value: Any, path: IndexedKeyPath = ()) -> Any:
        """The value with its variables replaced."""
        if isinstance(value, str):
            return self._pattern.sub(lambda found: self._value(found, path), value)
        if len(path) > _DEEPEST:
            self.problems.append(
                ConfigProblem(self.source, dotted(path[:3]), "the values are nested too deeply", "flatten them")
            )
            return None
        if isinstance(value, dict):
            if value.get("disabled") is True:
                return value
            return {key: self(item, (*path, str(key))) for key, item in value.items()}
        if isinstance(value, list):
            return [self(item, (*path, index)) for index, item in enumerate(value)]
        return value

    def _value(self, found: re.Match[str], path: IndexedKeyPath) -> str:
        name, default = found["name"], found["default"]
        if name in self._places and name not in self._environment:
            return str(self._places[name]())
        value = self._environment.get(name, "")
        if value or (default is None and name in self._environment):
            self.found.setdefault(path, []).append(value)
            return value
        if default is None:
            self._complain(name, path)
            return found.group()
        return str(default)

    def _complain(self, name: str, path: IndexedKeyPath) -> None:
        if ":" in name:
            verb = "ask for" if name.startswith("input:") else "fill in"
            what, fix = f"riglm cannot {verb} ${{{name}}}", "write ${env:VARIABLE} and set the variable"
        else:
            what, fix = f"the variable {name} is not set", f"set {name}, or write ${{{name}:-default}}"
        self.problems.append(ConfigProblem(self.source, dotted(path), what, fix))
