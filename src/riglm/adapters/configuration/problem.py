"""What is wrong with a configuration, collected, so that a user can mend all of it at once."""

import os
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.removed_keys import find_replacement
from riglm.domain.schemas.settings import Settings

IndexedKeyPath = tuple[str | int, ...]
"""The location of a value in the configuration: keys and positions from the top."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing wrong: the file, variable or option it came from, where in it, what, and what to do."""

    source: str
    path: str
    what: str
    fix: str

    def __str__(self) -> str:
        place = f"{self.source}: {self.path}" if self.path else self.source
        return f"{place}: {self.what} — fix: {self.fix}"


def dotted(path: IndexedKeyPath) -> str:
    """A path as people write it: `mcpServers.github.args[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def setter_of(path: IndexedKeyPath, origins: Mapping[IndexedKeyPath, str]) -> str | None:
    """What set the value at a path, or the list around it; None when nothing did."""
    prefixes = (path[:length] for length in range(len(path), 0, -1))
    return next((origins[prefix] for prefix in prefixes if prefix in origins), None)


def origin_of(path: IndexedKeyPath, origins: Mapping[IndexedKeyPath, str], default: str) -> str:
    """Where to look for what is wrong at a path: what set it, or else what set something in it or next to it."""
    setter = setter_of(path, origins)
    if setter is not None:
        return setter
    for length in range(len(path), 0, -1):
        near = (origin for place, origin in origins.items() if place[:length] == path[:length])
        if (found := next(near, None)) is not None:
            return found
    return default


def refusal(*problems: ConfigProblem) -> ConfigurationError:
    """Return one error that names all problems, each once and on a separate line."""
    return ConfigurationError("\n".join(dict.fromkeys(map(str, problems))))


def refuse_any(problems: Iterable[ConfigProblem]) -> None:
    """Raise an error that names all problems; nothing when there are none."""
    found = list(problems)
    if found:
        raise refusal(*found)


Form = Literal["section", "map", "list", "value"]
"""A section has fixed keys, a map keys of the user's choice."""


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """One place in the configuration: its form, the keys of a section, and what a map or list holds.

    `is_text` is True if a value may be any text, and is neither a number nor one of some choices.
    """

    form: Form
    keys: dict[str, Any]
    item: Any = None
    is_text: bool = False

    def below(self, key: str | int) -> "SchemaNode | None":
        """The place under a key, None when there can be none."""
        if self.form == "section":
            return shape_of(self.keys[key]) if key in self.keys else None
        return shape_of(self.item) if self.form in {"map", "list"} else None


def shape_of(annotation: Any) -> SchemaNode:
    """The shape that values of a type have."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin in {typing.Union, types.UnionType}:
        return shape_of(next(argument for argument in arguments if argument is not types.NoneType))
    if origin is typing.Annotated:
        return shape_of(arguments[0])
    if origin is dict:
        return SchemaNode("map", {}, arguments[1])
    if origin is tuple:
        return SchemaNode("list", {}, arguments[0])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields.items()
        return SchemaNode("section", {field.alias or name: field.annotation for name, field in fields})
    return SchemaNode("value", {}, is_text=annotation in {str, Any, SecretStr})


TOP = shape_of(Settings)
"""The shape of the whole configuration."""


def keys_at(path: IndexedKeyPath) -> tuple[str, ...]:
    """The keys that a section takes; none where there is no section."""
    here = _at(path)
    return tuple(here.keys) if here else ()


def holds_text(path: IndexedKeyPath) -> bool:
    """Whether a value at a path may be any text; where the configuration knows no such path, it may."""
    here = _at(path)
    return here is None or here.form != "value" or here.is_text


def _at(path: IndexedKeyPath) -> SchemaNode | None:
    here: SchemaNode | None = TOP
    for part in path:
        here = here.below(part) if here else None
    return here


_MAX_GUESSES = 5
_MAX_KEY_LENGTH = 64

_WORDS = {
    "missing": ("this key is missing", "add it"),
    "bool_parsing": ("this is not a yes or no", "write true or false"),
    "bool_type": ("this is not a yes or no", "write true or false"),
    "int_parsing": ("this is not a whole number", "write digits only"),
    "int_type": ("this is not a whole number", "write digits only"),
    "int_from_float": ("this is not a whole number", "write digits only"),
    "float_parsing": ("this is not a number", "write seconds as a number"),
    "float_type": ("this is not a number", "write seconds as a number"),
    "string_type": ("this is not text", "write text, in quotes when it looks like something else"),
    "dict_type": ("this is not a section", "write keys with values below it"),
    "model_type": ("this is not a section", "write keys with values below it"),
    "tuple_type": ("this is not a list", "write [one, two]"),
    "string_too_short": ("this is empty", "give it a value, or remove it"),
}


def problems_in(
    error: ValidationError, origins: Mapping[IndexedKeyPath, str], default_origin: str, *, most: int | None = None
) -> list[ConfigProblem]:
    """Return one problem for each of pydantic's errors, at most `most`; `origins` has the source of a path."""
    details = error.errors(include_url=False, include_input=False)[:most]
    guesses = _Guesses()
    return [_problem(detail, origins, default_origin, guesses) for detail in details]


class _Guesses:
    """What a key was perhaps meant to be; looked for a few times only, since that takes long."""

    def __init__(self) -> None:
        self._left = _MAX_GUESSES

    def fix(self, key: str, known: tuple[str, ...]) -> str:
        """What to do about a key that is none of those known."""
        self._left -= 1
        close = get_close_matches(key[:_MAX_KEY_LENGTH], known, n=1) if self._left >= 0 else []
        return f"did you mean `{close[0]}`?" if close else f"known are {', '.join(known)}"


def _problem(
    detail: ErrorDetails, origins: Mapping[IndexedKeyPath, str], default_origin: str, guesses: _Guesses
) -> ConfigProblem:
    path: IndexedKeyPath = detail["loc"]
    what, fix = _explain(detail, path, guesses)
    key = detail.get("ctx", {}).get("key", "")
    if key:
        path = (*path, key)
    return ConfigProblem(origin_of(path, origins, default_origin), dotted(path), what, fix)


def _explain(detail: ErrorDetails, path: IndexedKeyPath, guesses: _Guesses) -> tuple[str, str]:
    kind = detail["type"]
    context: dict[str, Any] = detail.get("ctx", {})
    if kind == "riglm":
        return context["what"], context["fix"]
    if kind == "extra_forbidden":
        replacement = find_replacement(dotted(path))
        if replacement is not None:
            return "this key was removed", replacement
        return "unknown key", guesses.fix(str(path[-1]), keys_at(path[:-1]))
    if kind == "literal_error":
        return "this is none of the choices", f"write {context['expected']}"
    if kind in _WORDS:
        return _WORDS[kind]
    return detail["msg"].replace("Input should", "the value should", 1), "see `riglm config schema`"


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
