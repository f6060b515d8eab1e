"""Counts of what came after what, in bounded memory."""

from collections.abc import Hashable, Mapping
from typing import Final

from riglm.adapters.prediction.features import Features
from riglm.domain.prediction import Scores

_SMALLEST: Final = 0.1
"""A count that was halved below this is forgotten."""


class Row:
    """How often each tool came in one circumstance."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}
        self.total = 0.0

    def add(self, tool: str, amount: float, *, most_tools: int, most_total: float) -> None:
        """Count a tool; what is old fades once the row holds `most_total`, what is rare goes beyond `most_tools`."""
        self.counts[tool] = self.counts.get(tool, 0.0) + amount
        self.total += amount
        if self.total > most_total:
            self._keep({tool: count / 2 for tool, count in self.counts.items() if count > 2 * _SMALLEST})
        if len(self.counts) > most_tools:
            ranked = sorted(self.counts.items(), key=lambda item: -item[1])
            self._keep(dict(ranked[: most_tools * 3 // 4]) | {tool: self.counts[tool]})

    def _keep(self, counts: dict[str, float]) -> None:
        self.counts = counts
        self.total = sum(counts.values())


_NOTHING: Final = Row()


class Counts:
    """Rows of counts by circumstance; the least recently used circumstances are removed for new ones.

    Old counts of a row are halved when it has grown to `most_total`: a habit that changed is forgotten after about as
    many calls in the same circumstance, however rare these are.
    """

    def __init__(
        self,
        *,
        most_rows: int = 4096,
        most_tools: int = 256,
        most_total: float = 1000.0,
        most_entries: int = 100_000,
    ) -> None:
        self._most_rows = most_rows
        self._most_tools = most_tools
        self._most_total = most_total
        self._most_entries = most_entries
        self._rows: dict[Hashable, Row] = {}
        self._entries = 0

    def add(self, circumstance: Hashable, tool: str, amount: float = 1.0) -> None:
        """Count a tool in a circumstance."""
        row = self._rows.pop(circumstance, None) or Row()
        self._rows[circumstance] = row
        before = len(row.counts)
        row.add(tool, amount, most_tools=self._most_tools, most_total=self._most_total)
        self._entries += len(row.counts) - before
        while len(self._rows) > self._most_rows or (self._entries > self._most_entries and len(self._rows) > 1):
            oldest = next(iter(self._rows))
            self._entries -= len(self._rows.pop(oldest).counts)

    def total(self, circumstance: Hashable) -> float:
        """The sum of a row."""
        return self._rows.get(circumstance, _NOTHING).total

    def row(self, circumstance: Hashable) -> Mapping[str, float]:
        """The counts of a row."""
        return self._rows.get(circumstance, _NOTHING).counts

    def share(self, features: Features, circumstance: Hashable, otherwise: Scores) -> Scores:
        """The probability of each candidate in a circumstance, backed off to `otherwise` as Witten and Bell do.

        The fewer different tools came, the more the counts are trusted.
        """
        row = self._rows.get(circumstance)
        if row is None or not row.counts:
            return otherwise
        return (features.spread(row.counts) + len(row.counts) * otherwise) / (row.total + len(row.counts))
