"""What is wrong with a configuration, collected, so that a user can mend all of it at once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from riglm.domain.errors import ConfigurationError

KeyPath = tuple[str | int, ...]
"""Where a value stands in the configuration: keys and positions from the top."""


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


def origin_of(path: KeyPath, origins: Mapping[KeyPath, str], default_origin: str) -> str:
    """Where the value at a path came from: what set it, or set something around it, or something in it."""
    for length in range(len(path), 0, -1):
        if path[:length] in origins:
            return origins[path[:length]]
    inside = (origin for place, origin in origins.items() if place[: len(path)] == path)
    return next(inside, default_origin)


def refuse(problems: Iterable[Problem]) -> None:
    """Raise one ConfigurationError that names all problems, each on a line; nothing when there are none."""
    lines: Sequence[str] = list(dict.fromkeys(map(str, problems)))
    if lines:
        raise ConfigurationError("\n".join(lines))
