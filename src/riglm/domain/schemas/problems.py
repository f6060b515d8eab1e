"""What is wrong with a configuration, collected, so that a user can correct all of it at once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.removed_keys import find_replacement
from riglm.domain.schemas.shape import IndexedKeyPath, dotted, keys_at


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


def refusal(*problems: ConfigProblem) -> ConfigurationError:
    """Return one error that names all problems, each once and on a separate line."""
    return ConfigurationError("\n".join(dict.fromkeys(map(str, problems))))


def refuse_any(problems: Iterable[ConfigProblem]) -> None:
    """Raise an error that names all problems; nothing when there are none."""
    if found := list(problems):
        raise refusal(*found)


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
        if replacement := find_replacement(dotted(path)):
            return "this key was removed", replacement
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
