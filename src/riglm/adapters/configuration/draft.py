"""A configuration in the making: what its sources set, each over the one before."""

from typing import Any

from riglm.adapters.configuration.expansion import Expansion
from riglm.adapters.configuration.problem import KeyPath, Problem
from riglm.adapters.configuration.shape import holds_text


class Draft:
    """Values by path, what set each of them last, and what was found wrong on the way."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[KeyPath, str] = {}
        self.problems: list[Problem] = []
        self.from_variables: set[str] = set()

    def set(self, path: KeyPath, value: Any, origin: str) -> None:
        """Put a value at a path. Mappings are merged with what is there, all else replaces it; None sets nothing."""
        if value is None:
            return
        if path:
            self._hold(path, {} if isinstance(value, dict) else value)
        if value == {} or not isinstance(value, dict):
            self.origins[path] = origin
        if isinstance(value, dict):
            for key, item in value.items():
                self.set((*path, str(key)), item, origin)

    def take_down(self, expansion: Expansion) -> None:
        """Note what was wrong with variables, and what they put into values that may be any text."""
        self.problems += expansion.problems
        for path, values in expansion.found.items():
            if holds_text(path):
                self.from_variables.update(values)

    def drop(self, *keys: str) -> None:
        """Forget all that was set at or below these keys of the top."""
        for key in keys:
            self.values.pop(key, None)
        self.origins = {path: origin for path, origin in self.origins.items() if not path or path[0] not in keys}

    def holds(self, section: str, key: str) -> bool:
        """Whether a section has a key; a section that is none counts as having it."""
        values = self.values.get(section, {})
        return not isinstance(values, dict) or key in values

    def _hold(self, path: KeyPath, value: Any) -> None:
        here = self.values
        for part in path[:-1]:
            inner = here.get(str(part))
            if not isinstance(inner, dict):
                inner = here[str(part)] = {}
            here = inner
        last = str(path[-1])
        if value != {} or not isinstance(here.get(last), dict):
            here[last] = value
