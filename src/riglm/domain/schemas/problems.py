"""The shape of the configuration, and what is wrong with one: all problems together, so that a user can fix all."""

import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import Settings

IndexedKeyPath = tuple[str | int, ...]
"""The location of a value in the configuration: keys and positions from the top."""


def dotted(path: IndexedKeyPath) -> str:
    """A path as people write it: `mcpServers.github.args[0]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """One place in the configuration: its form, the keys of a section, and what a map or list holds.

    A section has fixed keys, a map keys of the user's choice. `is_text` is True if a value may be any text, and is
    neither a number nor one of some choices.
    """

    form: Literal["section", "map", "list", "value"]
    keys: dict[str, Any] = field(default_factory=dict)
    item: Any = None
    is_text: bool = False

    def below(self, key: str | int) -> "SchemaNode | None":
        """The place under a key, None when there can be none."""
        if self.form == "section":
            return shape_of(self.keys[str(key)]) if key in self.keys else None
        return shape_of(self.item) if self.form in {"map", "list"} else None


def shape_of(annotation: Any) -> SchemaNode:
    """The shape that values of a type have."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in {typing.Union, types.UnionType, typing.Annotated}:
        return shape_of(next(argument for argument in arguments if argument is not types.NoneType))
    if origin is dict:
        return SchemaNode("map", item=arguments[1])
    if origin is tuple:
        return SchemaNode("list", item=arguments[0])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields.items()
        return SchemaNode("section", {field.alias or name: field.annotation for name, field in fields})
    return SchemaNode("value", is_text=annotation in {str, Any, SecretStr})


TOP = shape_of(Settings)
"""The shape of the whole configuration."""


def shape_at(path: IndexedKeyPath) -> SchemaNode | None:
    """The shape at a path, None if the configuration has no such path."""
    here: SchemaNode | None = TOP
    for part in path:
        here = here.below(part) if here else None
    return here


def keys_at(path: IndexedKeyPath) -> tuple[str, ...]:
    """The keys that a section takes; none where there is no section."""
    here = shape_at(path)
    return tuple(here.keys) if here else ()


def holds_text(path: IndexedKeyPath) -> bool:
    """Whether a value at a path may be any text; where the configuration knows no such path, it may."""
    here = shape_at(path)
    return here is None or here.form != "value" or here.is_text


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


def setter_of(path: IndexedKeyPath, origins: Mapping[IndexedKeyPath, str]) -> str | None:
    """What set the value at a path, or the list around it; None when nothing did."""
    prefixes = (path[:length] for length in range(len(path), 0, -1))
    return next((origins[prefix] for prefix in prefixes if prefix in origins), None)


def origin_of(path: IndexedKeyPath, origins: Mapping[IndexedKeyPath, str], default: str) -> str:
    """Where to look for what is wrong at a path: what set it, or else what set something in it or next to it."""
    if (setter := setter_of(path, origins)) is not None:
        return setter
    prefixes = (path[:length] for length in range(len(path), 0, -1))
    near = (origin for prefix in prefixes for place, origin in origins.items() if place[: len(prefix)] == prefix)
    return next(near, default)


def refusal(source: str, path: str, what: str, fix: str) -> ConfigurationError:
    """Return the error for one problem."""
    return ConfigurationError(str(ConfigProblem(source, path, what, fix)))


def refuse_any(problems: Iterable[ConfigProblem]) -> None:
    """Raise one error that names all problems, each once and on a separate line; nothing when there are none."""
    if lines := list(dict.fromkeys(map(str, problems))):
        raise ConfigurationError("\n".join(lines))


_MAX_GUESSES = 5  # looking for similar keys takes long
_MAX_KEY_LENGTH = 64

_NO_BOOLEAN = ("this is not a yes or no", "write true or false")
_NO_INTEGER = ("this is not a whole number", "write digits only")
_NO_NUMBER = ("this is not a number", "write seconds as a number")
_NO_SECTION = ("this is not a section", "write keys with values below it")
_WORDS = {
    "missing": ("this key is missing", "add it"),
    "bool_parsing": _NO_BOOLEAN,
    "bool_type": _NO_BOOLEAN,
    "int_parsing": _NO_INTEGER,
    "int_type": _NO_INTEGER,
    "int_from_float": _NO_INTEGER,
    "float_parsing": _NO_NUMBER,
    "float_type": _NO_NUMBER,
    "string_type": ("this is not text", "write text, in quotes when it looks like something else"),
    "dict_type": _NO_SECTION,
    "model_type": _NO_SECTION,
    "tuple_type": ("this is not a list", "write [one, two]"),
    "string_too_short": ("this is empty", "give it a value, or remove it"),
}


def problems_in(
    error: ValidationError, origins: Mapping[IndexedKeyPath, str], default_origin: str, *, most: int | None = None
) -> list[ConfigProblem]:
    """Return one problem for each of pydantic's errors, at most `most`; `origins` has the source of a path."""
    problems = []
    for number, detail in enumerate(error.errors(include_url=False, include_input=False)[:most]):
        path: IndexedKeyPath = detail["loc"]
        what, fix = _explain_error(detail, path, should_guess=number < _MAX_GUESSES)
        if key := detail.get("ctx", {}).get("key"):
            path = (*path, key)
        problems.append(ConfigProblem(origin_of(path, origins, default_origin), dotted(path), what, fix))
    return problems


def _explain_error(detail: ErrorDetails, path: IndexedKeyPath, *, should_guess: bool) -> tuple[str, str]:
    kind = detail["type"]
    context: dict[str, Any] = detail.get("ctx", {})
    if kind == "riglm":
        return context["what"], context["fix"]
    if kind == "extra_forbidden":
        known = keys_at(path[:-1])
        return "unknown key", _suggest_key(str(path[-1]), known) if should_guess else f"known are {', '.join(known)}"
    if kind == "literal_error":
        return "this is none of the choices", f"write {context['expected']}"
    if kind in _WORDS:
        return _WORDS[kind]
    return detail["msg"].replace("Input should", "the value should", 1), "see `riglm config schema`"


def _suggest_key(key: str, known: tuple[str, ...]) -> str:
    close = get_close_matches(key[:_MAX_KEY_LENGTH], known, n=1)
    return f"did you mean `{close[0]}`?" if close else f"known are {', '.join(known)}"
