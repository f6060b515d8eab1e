"""What an agent is given: the tools for now, and why it is those."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a tool was selected, or was not.

    `rank` is its place by prediction, 1 for the likeliest, and `score` what gave it that place, the sum of `signals`;
    None and empty where nothing was predicted. Scores compare within one selection.
    """

    why: str
    rank: int | None = None
    score: float | None = None
    signals: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selection(Generic[T]):
    """The tools for now, in the order in which they were given.

    `hidden` are the names of those left out, which may be used all the same. `reason` says how it was chosen, and
    `confidence`, from 0 to 1, how sure what was learned makes of it. `reasons` has the reason for each tool by name.
    `tokens` and `tokens_saved` are estimates, of the definitions that are in and of those that are not.
    """

    objects: Mapping[str, T]
    hidden: tuple[str, ...]
    reason: str
    confidence: float
    reasons: Mapping[str, Reason]
    tokens: int
    tokens_saved: int

    @property
    def tools(self) -> list[T]:
        """The same objects that were given, in a list of the caller's own."""
        return list(self.objects.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(self.objects)

    def why(self, tool: str) -> str:
        """Why a tool is in the selection or not, in words."""
        found = self.reasons.get(tool)
        return "no tool of this name was given" if found is None else found.why

    def __len__(self) -> int:
        return len(self.objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self.objects.values())

    def __contains__(self, tool: object) -> bool:
        if isinstance(tool, str):
            return tool in self.objects
        return any(tool is each for each in self.objects.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTool(Generic[T]):
    """A tool that a search found: its score from 0 to 1, and what made it fit."""

    name: str
    tool: T
    score: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings(Generic[T]):
    """What a search found, best first; `near` are the names of tools that come close, and there may be no other."""

    found: tuple[FoundTool[T], ...]
    near: tuple[str, ...]

    @property
    def tools(self) -> list[T]:
        """The tools that were found."""
        return [each.tool for each in self.found]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[FoundTool[T]]:
        return iter(self.found)
