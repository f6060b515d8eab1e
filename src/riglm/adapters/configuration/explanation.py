"""pydantic's errors of a configuration, in words that name the place and the fix."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from riglm.adapters.configuration.problem import KeyPath, Problem, dotted, origin_of
from riglm.adapters.configuration.shape import keys_at

_MOST_GUESSES = 5
_LONGEST_KEY = 64

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
    error: ValidationError, origins: Mapping[KeyPath, str], default_origin: str, *, most: int | None = None
) -> list[Problem]:
    """Return one problem for each of pydantic's errors, at most `most`; `origins` has the source of a path."""
    details = error.errors(include_url=False, include_input=False)[:most]
    guesses = _Guesses()
    return [_problem(detail, origins, default_origin, guesses) for detail in details]


class _Guesses:
    """What a key was perhaps meant to be; looked for a few times only, since that takes long."""

    def __init__(self) -> None:
        self._left = _MOST_GUESSES

    def fix(self, key: str, known: tuple[str, ...]) -> str:
        """What to do about a key that is none of those known."""
        self._left -= 1
        close = get_close_matches(key[:_LONGEST_KEY], known, n=1) if self._left >= 0 else []
        return f"did you mean `{close[0]}`?" if close else f"known are {', '.join(known)}"


def _problem(detail: ErrorDetails, origins: Mapping[KeyPath, str], default_origin: str, guesses: _Guesses) -> Problem:
    path: KeyPath = detail["loc"]
    what, fix = _explain(detail, path, guesses)
    key = detail.get("ctx", {}).get("key", "")
    if key:
        path = (*path, key)
    return Problem(origin_of(path, origins, default_origin), dotted(path), what, fix)


def _explain(detail: ErrorDetails, path: KeyPath, guesses: _Guesses) -> tuple[str, str]:
    kind = detail["type"]
    context: dict[str, Any] = detail.get("ctx", {})
    if kind == "riglm":
        return context["what"], context["fix"]
    if kind == "extra_forbidden":
        return "unknown key", guesses.fix(str(path[-1]), keys_at(path[:-1]))
    if kind == "literal_error":
        return "this is none of the choices", f"write {context['expected']}"
    if kind in _WORDS:
        return _WORDS[kind]
    return detail["msg"].replace("Input should", "the value should", 1), "see `riglm config schema`"
