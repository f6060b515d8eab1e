"""What pydantic says of a configuration, in words that name the place and the fix."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from riglm.adapters.configuration.problem import KeyPath, Problem, dotted, origin_of
from riglm.adapters.configuration.shape import keys_at

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


def problems_in(error: ValidationError, origins: Mapping[KeyPath, str], default_origin: str) -> list[Problem]:
    """One problem for each of pydantic's errors; `origins` tells which file, variable or option set a path."""
    return [
        _problem(detail, origins, default_origin) for detail in error.errors(include_url=False, include_input=False)
    ]


def _problem(detail: ErrorDetails, origins: Mapping[KeyPath, str], default_origin: str) -> Problem:
    path: KeyPath = detail["loc"]
    what, fix = _explain(detail, path)
    key = detail.get("ctx", {}).get("key", "")
    if key:
        path = (*path, key)
    return Problem(origin_of(path, origins, default_origin), dotted(path), what, fix)


def _explain(detail: ErrorDetails, path: KeyPath) -> tuple[str, str]:
    kind = detail["type"]
    context: dict[str, Any] = detail.get("ctx", {})
    if kind == "riglm":
        return context["what"], context["fix"]
    if kind == "extra_forbidden":
        return _unknown_key(str(path[-1]), keys_at(path[:-1]))
    if kind == "literal_error":
        return "this is none of the choices", f"write {context['expected']}"
    if kind in _WORDS:
        return _WORDS[kind]
    return detail["msg"].replace("Input should", "the value should", 1), "see `riglm config schema`"


def _unknown_key(key: str, known: tuple[str, ...]) -> tuple[str, str]:
    close = get_close_matches(key, known, n=1)
    return "unknown key", f"did you mean `{close[0]}`?" if close else f"known are {', '.join(known)}"
