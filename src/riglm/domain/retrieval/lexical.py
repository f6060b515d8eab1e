"""How well tools fit by their words: BM25 over fields that weigh differently."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from riglm.domain.prediction import Scores
from riglm.domain.retrieval.words import words
from riglm.domain.tool import ToolProfile

FIELD_WEIGHTS: Final[Mapping[str, float]] = {
    "server": 1.0,
    "name": 2.0,
    "description": 1.0,
    "parameters": 0.5,
    "parameter descriptions": 0.3,
}
"""How much a word counts by where a tool says it."""

_SATURATION: Final = 1.2
_LENGTH: Final = 0.75


class LexicalIndex:
    """Answers from postings, so that a query costs what its words occur, not what the catalogue holds."""

    def __init__(self, tools: Sequence[ToolProfile], weights: Mapping[str, float] = FIELD_WEIGHTS) -> None:
        self._count = len(tools)
        self._terms: dict[str, int] = {}
        term, row, weight = self._occurrences(tools, weights)
        order = np.lexsort((row, term))
        term, row, weight = term[order], row[order], weight[order]
        first = np.ones(len(term), bool)
        first[1:] = (term[1:] != term[:-1]) | (row[1:] != row[:-1])
        starts = np.flatnonzero(first)
        total = np.add.reduceat(weight, starts) if len(starts) else weight
        term, self._rows = term[starts], row[starts]
        found = np.bincount(term, minlength=len(self._terms))
        self._rarity = np.log1p((self._count - found + 0.5) / (found + 0.5))
        self._ends = np.cumsum(found)
        self._weights = self._rarity[term] * total * (_SATURATION + 1) / (_SATURATION + total)
        self._unknown = float(np.log1p((self._count + 0.5) / 0.5))

    def scores(self, stems: Sequence[str]) -> Scores:
        """BM25 of each tool for the stems of a query; 0 where no word is shared."""
        scores = np.zeros(self._count)
        for stem, times in Counter(stems).items():
            rows, weights = self._postings(stem)
            scores[rows] += times * weights
        return scores

    def coverage(self, stems: Sequence[str]) -> Scores:
        """Return the share of the query's weight, by rarity, whose words each tool has; between 0 and 1."""
        shares = np.zeros(self._count)
        total = 0.0
        for stem in set(stems):
            rarity = self._unknown
            if stem in self._terms:
                rarity = float(self._rarity[self._terms[stem]])
                shares[self._postings(stem)[0]] += rarity
            total += rarity
        return shares / total if total else shares

    def has(self, row: int, stem: str) -> bool:
        """Whether the tool of that row says a word."""
        rows, _ = self._postings(stem)
        at = int(np.searchsorted(rows, row))
        return at < len(rows) and int(rows[at]) == row

    def _postings(self, stem: str) -> tuple[NDArray[np.int64], Scores]:
        term = self._terms.get(stem)
        if term is None:
            return self._rows[:0], self._weights[:0]
        posted = slice(self._ends[term - 1] if term else 0, self._ends[term])
        return self._rows[posted], self._weights[posted]

    def _occurrences(
        self, tools: Sequence[ToolProfile], weights: Mapping[str, float]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Scores]:
        """The stem, the tool and the weight of all that the tools say, field by field."""
        terms: list[int] = []
        rows: list[int] = []
        weighed: list[Scores] = []
        said = [_fields(tool) for tool in tools]
        for field, weight in weights.items():
            counts: list[int] = []
            lengths = np.zeros(self._count)
            before = len(rows)
            for row, fields in enumerate(said):
                stems = words(fields[field])
                lengths[row] = len(stems)
                for stem, count in Counter(stems).items():
                    terms.append(self._terms.setdefault(stem, len(self._terms)))
                    rows.append(row)
                    counts.append(count)
            mean = lengths[lengths > 0].mean() if lengths.any() else 1.0
            norm = 1 - _LENGTH + _LENGTH * lengths / mean
            weighed.append(weight * np.array(counts, float) / norm[np.array(rows[before:], np.int64)])
        return np.array(terms, np.int64), np.array(rows, np.int64), np.concatenate([np.zeros(0), *weighed])


def _fields(tool: ToolProfile) -> dict[str, str]:
    return {
        "server": f"{tool.server} {tool.server_description}",
        "name": tool.bare_name or tool.name,
        "description": tool.description,
        "parameters": " ".join(tool.parameters),
        "parameter descriptions": " ".join(tool.parameter_descriptions),
    }
