"""Variables in configuration files: `${VAR}` and `${VAR:-default}`, in one pass."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from riglm.adapters.configuration.problem import KeyPath, Problem, dotted

_DEEPEST = 32
_OURS = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_CLIENTS = re.compile(r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*|input:[^}]*)(?::-(?P<default>[^}]*))?\}")


class Expansion:
    """Replaces variables in all texts below a value; what a variable holds is never expanded again.

    An unset or empty variable takes its default; one without a default is noted in `problems`. Keys stay as they are,
    and so does all that is disabled. `of_client` also takes `${env:VAR}` and the editor's `${userHome}` and
    `${workspaceFolder}`. `found` has the values of variables, by the paths of the texts that they were put into.
    """

    def __init__(self, source: str, environment: Mapping[str, str], *, of_client: bool = False) -> None:
        self.problems: list[Problem] = []
        self.found: dict[KeyPath, list[str]] = {}
        self._source = source
        self._pattern = _CLIENTS if of_client else _OURS
        self._environment = environment
        places: dict[str, Callable[[], Path]] = {"userHome": Path.home, "workspaceFolder": Path.cwd}
        self._places = places if of_client else {}

    def __call__(self, value: Any, path: KeyPath = ()) -> Any:
        """The value with its variables replaced."""
        if isinstance(value, str):
            return self._pattern.sub(lambda found: self._value(found, path), value)
        if len(path) > _DEEPEST:
            self.problems.append(
                Problem(self._source, dotted(path[:3]), "the values are nested too deeply", "flatten them")
            )
            return value
        if isinstance(value, dict):
            if value.get("disabled") is True:
                return value
            return {key: self(item, (*path, str(key))) for key, item in value.items()}
        if isinstance(value, list):
            return [self(item, (*path, index)) for index, item in enumerate(value)]
        return value

    def _value(self, found: re.Match[str], path: KeyPath) -> str:
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

    def _complain(self, name: str, path: KeyPath) -> None:
        if name.startswith("input:"):
            what, fix = f"riglm cannot ask for ${{{name}}}", "write ${env:VARIABLE} and set the variable"
        else:
            what, fix = f"the variable {name} is not set", f"set {name}, or write ${{{name}:-default}}"
        self.problems.append(Problem(self._source, dotted(path), what, fix))
