"""What is wrong with a configuration, collected, so that a user can mend all of it at once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from riglm.domain.errors import ConfigurationError

KeyPath = tuple[str | int, ...]
"""The location of a value in the configuration: keys and positions from the top."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong: the file, variable or option it came from, where in it, what, and what to do."""

    source: str
    path: str
    what: str
    fix: str

    def __str__(self) -> str:
        place = f"{self.source}: {self.path}" if self.path else self.source
        return f"{place}: {self.what} — fix: {self.fix}"


def dotted(path: KeyPath) -> str:
    """A path as people write it: `mcpServers.github.args[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def setter_of(path: KeyPath, origins: Mapping[KeyPath, str]) -> str | None:
    """What set the value at a path, or the list around it; None when nothing did."""
    prefixes = (path[:length] for length in range(len(path), 0, -1))
    return next((origins[prefix] for prefix in prefixes if prefix in origins), None)


def origin_of(path: KeyPath, origins: Mapping[KeyPath, str], default: str) -> str:
    """Where to look for what is wrong at a path: what set it, or else what set something in it or next to it."""
    setter = setter_of(path, origins)
    if setter is not None:
        return setter
    for length in range(len(path), 0, -1):
        near = (origin for place, origin in origins.items() if place[:length] == path[:length])
        if (found := next(near, None)) is not None:
            return found
    return default


def refusal(*problems: Problem) -> ConfigurationError:
    """Return one error that names all problems, each once and on a separate line."""
    return ConfigurationError("\n".join(dict.fromkeys(map(str, problems))))


def refuse_any(problems: Iterable[Problem]) -> None:
    """Raise an error that names all problems; nothing when there are none."""
    found = list(problems)
    if found:
        raise refusal(*found)
