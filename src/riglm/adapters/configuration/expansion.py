"""Variables in the texts of a configuration."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from riglm.domain.schemas.problems import ConfigProblem
from riglm.domain.schemas.shape import IndexedKeyPath, dotted

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
