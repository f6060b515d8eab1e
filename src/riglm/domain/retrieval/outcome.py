"""What a search found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A tool that was found: its score between 0 and 1, and in a few words why it was found.

    `probability` estimates how likely the query asks for this tool. It never rises from one hit to the next.
    """

    name: str
    score: float
    probability: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOutcome:
    """The hits, best first, and the names of the tools that came next.

    With `abstained` nothing fits; then there are no hits, and the nearest tools are in `near`.
    """

    hits: tuple[Hit, ...]
    near: tuple[str, ...]
    abstained: bool
