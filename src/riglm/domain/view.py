"""What policy leaves of a catalogue for one session."""

from dataclasses import dataclass
from functools import cached_property

from riglm.domain.tokens import estimated_tokens
from riglm.domain.tool import Catalogue


@dataclass(frozen=True, kw_only=True)
class View:
    """The tools of a catalogue that a session may know of.

    `candidates` can be shown, in the catalogue's order, `kept` are those among them that always are. `away` may run and
    are never shown. All others are denied.
    """

    catalogue: Catalogue
    candidates: tuple[str, ...]
    kept: frozenset[str] = frozenset()
    away: frozenset[str] = frozenset()

    @cached_property
    def candidate_set(self) -> frozenset[str]:
        """The candidates, for membership tests."""
        return frozenset(self.candidates)

    @property
    def is_whole(self) -> bool:
        """Whether every tool of the catalogue can be shown."""
        return len(self.candidates) == len(self.catalogue.names)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The bytes of each candidate's definition."""
        return {name: memoryview(self.catalogue.by_name[name].raw).nbytes for name in self.candidates}

    @cached_property
    def tokens(self) -> int:
        """The estimated tokens of all candidates."""
        return estimated_tokens(sum(self.sizes.values()))

    def tokens_of(self, names: frozenset[str]) -> int:
        """The estimated tokens of some candidates."""
        return estimated_tokens(sum(self.sizes.get(name, 0) for name in names))

    def allows(self, name: str) -> bool:
        """Whether the catalogue has a tool of this name that may run."""
        return name in self.candidate_set or name in self.away
