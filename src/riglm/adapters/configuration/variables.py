"""Variables: those in the texts of a configuration, and those of the environment that set its keys.

Those of `inner_voice.retrieve` have the same names in every implementation. They never stop a start: what is out of
bounds is put on the bound, what cannot be read is left out, with a warning. They go before all other settings.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from riglm.domain.schemas.filtering import DEFAULT_CANDIDATES, DEFAULT_MIN_FLOOR, MAX_CANDIDATES, KnowledgeSettings
from riglm.domain.schemas.problems import TOP, ConfigProblem, IndexedKeyPath, SchemaNode, dotted, keys_at

if TYPE_CHECKING:
    from riglm.adapters.configuration.loading import Draft

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
            yield _unknown(name)


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


def _unknown(name: str) -> ConfigProblem:
    close = get_close_matches(name, _list_names(), n=1, cutoff=0.8)
    fix = f"did you mean {close[0]}?" if close else "remove it; `riglm config schema` has all settings"
    return ConfigProblem(name, "", "there is no such setting", fix)


def _list_names() -> list[str]:
    """Return the variables of all sections and of the settings directly in them."""
    paths = [path for key in TOP.keys for path in ((key,), *((key, inner) for inner in keys_at((key,))))]
    return [(PREFIX + _NESTED.join(path)).upper() for path in paths]


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


GATE: Final = "SURR_ENABLE_INNER_VOICE"
"""`1` switches the tool on, anything else off, also nothing at all."""

MIX: Final = "SURR_INNER_VOICE_MIX"
TOP_K: Final = "SURR_INNER_VOICE_TOPK_DEFAULT"
MIN_FLOOR: Final = "SURR_INNER_VOICE_MIN_FLOOR"
CANDIDATES: Final = "SURR_INNER_VOICE_MAX_CANDIDATES_PER_SOURCE"
PROVIDER: Final = "SURR_EMBED_PROVIDER"
MODEL: Final = "SURR_EMBED_MODEL"
DIMENSIONS: Final = "SURR_EMBED_DIM"

_PROVIDERS: Final = ("fastembed", "static")
_MAX_SNIPPETS: Final = 50
_PER_SNIPPET: Final = 3
_TRUE: Final = frozenset({"true", "1", "yes", "on", "t", "y"})
_MAX_SHOWN_LENGTH: Final = 40


def take_inner_voice(draft: "Draft", environment: Mapping[str, str], *, always: bool = False) -> list[str]:
    """Set what the variables say, all but the gate only where the tool is switched on, or `always`; the warnings."""
    given = {name: text.strip() for name, text in environment.items() if name.startswith("SURR_")}
    warnings: list[str] = []

    def put(name: str, section: str, key: str, value: Any, warning: str = "") -> None:
        draft.set((section, key), value, name)
        if warning:
            warnings.append(f"{name}: {warning}")

    gate = given.get(GATE)
    if gate is not None:
        warning = "" if gate in {"0", "1"} else f"{_shown(gate)} disables inner_voice.retrieve; only 1 enables it"
        put(GATE, "knowledge", "enabled", gate == "1", warning)
    if not (always or str(_held(draft, "enabled")).lower() in _TRUE):
        return warnings
    for name, key, read, what, lowest, highest in _BOUNDED:
        if text := given.get(name):
            number = read(text)
            if number is None:
                put(name, "knowledge", key, None, f"{_shown(text)} is no {what}, and is left out")
                continue
            bounded = min(max(number, lowest), highest)
            warning = f"{_shown(text)} is not from {lowest:g} to {highest:g}: {bounded:g} it is"
            put(name, "knowledge", key, bounded, "" if bounded == number else warning)
    if text := given.get(MIN_FLOOR):
        floor = _number(text)
        is_good = floor is not None and 0 < floor < 1
        warning = "" if is_good else f"{_shown(text)} is not between 0 and 1: {DEFAULT_MIN_FLOOR:g} it is"
        put(MIN_FLOOR, "knowledge", "min_floor", floor if is_good else DEFAULT_MIN_FLOOR, warning)
    if given.get(CANDIDATES) or given.get(TOP_K):
        most, warning = _candidates(given.get(CANDIDATES), draft)
        put(CANDIDATES, "knowledge", "max_candidates_per_source", most, warning)
    provider = given.get(PROVIDER, "").lower()
    if provider and provider not in _PROVIDERS:
        known = " and ".join(_PROVIDERS)
        warning = f"{_shown(provider)} is none of riglm's, which are {known}: the embedder stays as it is configured"
        put(PROVIDER, "embedder", "provider", None, warning)
        return warnings
    put(PROVIDER, "embedder", "provider", provider or None)
    put(MODEL, "embedder", "model", given.get(MODEL) or None)
    if text := given.get(DIMENSIONS):
        dimensions = _whole(text)
        is_good = dimensions is not None and dimensions >= 1
        warning = "" if is_good else f"{_shown(text)} is no whole number from 1, and is left out"
        put(DIMENSIONS, "knowledge", "dimensions", dimensions if is_good else None, warning)
    return warnings


def _candidates(text: str | None, draft: "Draft") -> tuple[int | None, str]:
    """Return the bound if given, None for the previous one, and a warning; the snippets of one answer always fit."""
    top_k = _whole(str(_held(draft, "top_k"))) or KnowledgeSettings().top_k
    given = text or str(_held(draft, "max_candidates_per_source"))
    number = _whole(given)
    if number is None or number < top_k:
        enough = max(_PER_SNIPPET * top_k, DEFAULT_CANDIDATES)
        return enough, f"{_shown(given)} is no number from {top_k}, which top_k is: {enough} it is"
    if number > MAX_CANDIDATES:
        return MAX_CANDIDATES, f"{_shown(given)} is more than {MAX_CANDIDATES}, which it is"
    return number if text else None, ""


def _held(draft: "Draft", key: str) -> Any:
    section = draft.values.get("knowledge")
    held = section.get(key) if isinstance(section, dict) else None
    return KnowledgeSettings.model_fields[key].default if held is None else held


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _whole(text: str) -> int | None:
    try:
        return int(text[:_MAX_SHOWN_LENGTH])
    except ValueError:
        return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN_LENGTH else f"{text[:_MAX_SHOWN_LENGTH]}…")


_BOUNDED: Final[Sequence[tuple[str, str, Callable[[str], float | None], str, float, float]]] = (
    (MIX, "mix", _number, "number", 0.0, 1.0),
    (TOP_K, "top_k", _whole, "whole number", 1, _MAX_SNIPPETS),
)
"""Variables of numbers with the keys that they set, and the bounds."""
