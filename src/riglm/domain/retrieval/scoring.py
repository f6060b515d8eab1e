"""Scores of tools for a request, by words and by vectors."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from riglm.domain.prediction import Scores, Vector
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
_LONG: Final = 2.0  # a field is long if it has more than this many times the median of distinct words
_MIN_MEDIAN: Final = 20.0


class LexicalIndex:
    """BM25 over postings, so that a query costs what its words occur, not what the catalogue holds.

    A word counts once in each field, and words of long fields count less, so that a description gains nothing by
    repeating words or by listing those of other tools.
    """

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
            lengths = np.zeros(self._count)
            before = len(rows)
            for row, fields in enumerate(said):
                stems = dict.fromkeys(words(fields[field]))
                lengths[row] = len(stems)
                terms += [self._terms.setdefault(stem, len(self._terms)) for stem in stems]
                rows += [row] * len(stems)
            used = lengths[lengths > 0] if lengths.any() else np.ones(1)
            norm = 1 - _LENGTH + _LENGTH * lengths / used.mean()
            norm *= np.maximum(1.0, lengths / (_LONG * max(float(np.median(used)), _MIN_MEDIAN)))
            weighed.append(weight / norm[np.array(rows[before:], np.int64)])
        return np.array(terms, np.int64), np.array(rows, np.int64), np.concatenate([np.zeros(0), *weighed])


def _fields(tool: ToolProfile) -> dict[str, str]:
    return {
        "server": f"{tool.server} {tool.server_description}",
        "name": tool.bare_name or tool.name,
        "description": tool.description,
        "parameters": " ".join(tool.parameters),
        "parameter descriptions": " ".join(tool.parameter_descriptions),
    }


_SMALL_CATALOG: Final = 500
_LARGE_CATALOG: Final = 8_000
_LEVEL_RANK: Final = 10


def standardized(scores: Scores) -> Scores:
    """Return each row with mean 0 and deviation 1; a row of equal scores carries no information and becomes zeros."""
    if not scores.shape[-1]:
        return scores
    spread = scores.std(axis=-1, keepdims=True)
    return np.where(spread > 1e-9, (scores - scores.mean(axis=-1, keepdims=True)) / np.maximum(spread, 1e-9), 0.0)


def relative(scores: Scores) -> Scores:
    """The best at 1, what is no better than the mean at 0."""
    best = scores.max(initial=0.0)
    return np.clip(scores / best, 0.0, 1.0) if best > 0 else np.zeros(len(scores))


def size_share(tools: int) -> float:
    """Return 0 for a small catalog, 1 for one of thousands of tools, and between them the share on a log scale."""
    share = math.log(max(tools, 1) / _SMALL_CATALOG) / math.log(_LARGE_CATALOG / _SMALL_CATALOG)
    return min(max(share, 0.0), 1.0)


def level(words: Scores, meaning: Scores) -> Scores:
    """Return standardised scores by words, on the level of those by meaning, row by row.

    In a large catalog few tools share a word with a request, so scores by words deviate much further. The tenth best
    tool by words is lowered towards the tenth best by meaning. Distances above it are kept, so that outliers among the
    tools that share words remain outliers.
    """
    share = size_share(words.shape[1])
    if not share:
        return words
    last = words.shape[1] - _LEVEL_RANK
    tenth = np.partition(words, last, axis=1)[:, last, None]
    target = np.partition(meaning, last, axis=1)[:, last, None]
    factor = np.clip(target / np.maximum(tenth, 1e-9), 0.0, 1.0) ** share
    return np.where(words <= tenth, words * factor, words + tenth * (factor - 1))


SERVER_WEIGHT: Final = 0.3
"""Weight of the mean of a server's tools, relative to the tool itself."""


class DenseIndex:
    """The vectors of one model; `rows` are the tools that have one, in the order of the tools."""

    def __init__(self, model: str, names: Sequence[str], servers: Sequence[str], vectors: Mapping[str, Vector]) -> None:
        self.model = model
        self.rows = np.array([row for row, name in enumerate(names) if name in vectors], np.int64)
        size = len(next(iter(vectors.values()))) if vectors else 0
        self._matrix = np.zeros((len(self.rows), size), np.float32)
        for at, row in enumerate(self.rows):
            self._matrix[at] = vectors[names[row]]
        self._matrix[~np.isfinite(self._matrix).all(axis=1)] = 0.0
        self._mean = self._matrix.mean(axis=0) if len(self.rows) else np.zeros(size, np.float32)
        self._server, self._servers = self._grouped([servers[row] for row in self.rows])
        share = size_share(len(self.rows)) if len(self._servers) else 0.0
        self._generality = share * (self._matrix @ self._mean)
        self._spread = np.maximum(np.linalg.norm(self._matrix - self._mean, axis=1), 1e-6) ** (share - 1)

    def fits(self, queries: Vector) -> bool:
        """Whether vectors can be compared with these."""
        return len(self.rows) > 0 and bool(queries.shape[-1] == self._matrix.shape[1] and np.isfinite(queries).all())

    def similarities(self, queries: Vector) -> Vector:
        """The cosine of each query, a row, with each tool that has a vector, a column."""
        return queries @ self._matrix.T

    def scores(self, queries: Vector, similarities: Vector) -> Scores:
        """Return standardised scores for each query; what all tools have in common does not count.

        The larger a catalog of several servers, the more a tool loses for being near to all others: among thousands, a
        tool that is near to everything is near to any request.
        """
        scores = standardized((similarities - (queries @ self._mean)[:, None] - self._generality) * self._spread)
        return np.asarray(scores, np.float64)

    def server_scores(self, query: Vector) -> Scores:
        """Standardised scores of the tools' servers for one query; zeros where there is only one or none."""
        if not len(self._servers):
            return np.zeros(len(self.rows))
        return standardized((self._servers @ query)[self._server].astype(np.float64))

    def _grouped(self, servers: Sequence[str]) -> tuple[NDArray[np.int64], Vector]:
        """For each tool the row of its server, and the servers' mean vectors; none if no server has several tools."""
        keys = [server or f"\0{at}" for at, server in enumerate(servers)]
        number = {key: at for at, key in enumerate(dict.fromkeys(keys))}
        if not 1 < len(number) < len(keys):
            return np.zeros(0, np.int64), self._matrix[:0]
        server = np.array([number[key] for key in keys], np.int64)
        sums = np.zeros((len(number), self._matrix.shape[1]), np.float32)
        np.add.at(sums, server, self._matrix)
        return server, sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-6)


_WORDS_SHARE: Final = 0.5
_SIZE_SHARE: Final = 0.08
_MIN_TOOLS: Final = 50
_BIAS: Final = -0.14
_MIN_COVERAGE: Final = 0.03


def suitability(similarity: float | None, coverage: float, tools: int) -> float:
    """Return how well the best of all tools suits a request; under 0, nothing fits.

    `similarity` is the best cosine, None without vectors that mean something; `coverage` the share of the request's
    words, by rarity, that one tool has. The more tools there are, the nearer the best one comes by chance. The
    constants were fitted on requests to other catalogs: `python -m benchmarks.retrieval abstention`.
    """
    if similarity is None:
        return coverage - _MIN_COVERAGE
    chance = _SIZE_SHARE * math.log(max(tools, _MIN_TOOLS))
    return similarity + _WORDS_SHARE * coverage - chance - _BIAS
