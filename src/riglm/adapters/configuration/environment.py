"""Environment variables that set keys of the configuration."""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from riglm.domain.schemas.problems import ConfigProblem
from riglm.domain.schemas.removed_keys import find_replacement
from riglm.domain.schemas.shape import TOP, IndexedKeyPath, SchemaNode

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
