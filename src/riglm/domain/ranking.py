"""From scores to the tools of a list."""

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from riglm.domain.prediction import Scores

UNSURE: Final = 0.3
"""Below this confidence everything is shown."""

SURE: Final = 0.7
"""Above this confidence a search is unlikely to be needed, and stands last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the lists of one context hold.

    `tools` is None when it is all of the `candidates`, from which the choice was made. `search_first` says whether the
    search stands before the tools or after them. It is not `settled` while the context has no vector yet.
    """

    candidates: tuple[str, ...]
    tools: frozenset[str] | None = None
    search_first: bool = False
    settled: bool = True
    confidence: float = 0.0
    predictor: str = ""
    reason: str = ""

    @property
    def chosen(self) -> frozenset[str]:
        """The tools by name, also when it is all."""
        return frozenset(self.candidates) if self.tools is None else self.tools


def ranked(names: Sequence[str], scores: Scores | Sequence[float], most: int) -> list[str]:
    """The best `most` names, best first; among equals the order of the names holds. What is no number comes last."""
    given: list[float] = scores.tolist() if hasattr(scores, "tolist") else list(scores)
    keys = [-score if score == score else float("inf") for score in given]  # noqa: PLR0124  # NaN differs from itself
    return [names[index] for index in heapq.nsmallest(most, range(len(names)), key=keys.__getitem__)]


def selected(
    names: Sequence[str], scores: Scores | Sequence[float], kept: Collection[str], size: int
) -> frozenset[str]:
    """The kept tools, and the best ones until there are `size`."""
    found = set(kept)
    for name in ranked(names, scores, size + len(found)):
        if len(found) >= size:
            break
        found.add(name)
    return frozenset(found)
