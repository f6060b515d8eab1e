"""Prediction inputs as arrays over the candidates, and bounded tables of decayed counts."""

from collections.abc import Hashable, Mapping
from functools import cached_property, lru_cache
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from riglm.domain.prediction import Prediction, PredictionInput, Scores

MAX_LATEST: Final = 12
"""Maximum number of different tools, the latest of a session, that are considered one by one."""
_CATALOGS: Final = 16
_MIN_COUNT: Final = 0.1
_MAX_ROWS: Final = 4096


class IndexedInput:
    """A prediction input with its calls and servers as arrays over the `size` candidates.

    `server_sizes` has for each candidate the number of candidates of its server.
    """

    def __init__(self, prediction_input: PredictionInput) -> None:
        self.prediction_input = prediction_input
        self.candidates = prediction_input.candidates
        self.size = len(self.candidates)
        self.calls = prediction_input.calls
        self.column = _columns(self.candidates)
        self._servers, self._server_numbers, self.server_sizes = _numbered(tuple(map(self.server_of, self.candidates)))

    @cached_property
    def ages(self) -> dict[str, int]:
        """The different tools of the session, latest first, each with the number of calls since."""
        found: dict[str, int] = {}
        for age, tool in enumerate(reversed(self.calls)):
            found.setdefault(tool, age)
        return found

    @cached_property
    def latest(self) -> tuple[str, ...]:
        """The different tools that were used last, latest first."""
        return tuple(self.ages)[:MAX_LATEST]

    @cached_property
    def used(self) -> NDArray[np.bool_]:
        """True for candidates that the session has used."""
        mask = np.zeros(self.size, np.bool_)
        mask[[self.column[tool] for tool in self.ages if tool in self.column]] = True
        return mask

    def server_of(self, tool: str) -> str:
        """Return the server of a tool, candidate or not; empty if unknown."""
        return self.prediction_input.servers.get(tool, "")

    def by_server(self, amounts: Mapping[str, float]) -> Scores:
        """Return an array over the candidates from amounts by server."""
        found = np.fromiter(map(amounts.get, self._servers, repeat(0.0)), np.float64, len(self._servers))
        return found[self._server_numbers]

    def spread(self, amounts: Mapping[str, float]) -> Scores:
        """Return an array over the candidates from amounts by tool."""
        found = np.zeros(self.size)
        for tool in amounts.keys() & self.column.keys():
            found[self.column[tool]] = amounts[tool]
        return found


@lru_cache(_CATALOGS)
def _columns(candidates: tuple[str, ...]) -> Mapping[str, int]:
    return {tool: index for index, tool in enumerate(candidates)}


@lru_cache(_CATALOGS)
def _numbered(servers: tuple[str, ...]) -> tuple[Mapping[str, int], NDArray[np.intp], Scores]:
    """Return a number for each server, the number of each candidate's server, and the size of this server."""
    names = {name: number for number, name in enumerate(dict.fromkeys(servers))}
    numbers = np.fromiter(map(names.__getitem__, servers), np.intp, len(servers))
    return names, numbers, np.bincount(numbers)[numbers].astype(np.float64)


class Counts:
    """Rows of counts by circumstance, in bounded memory; the least recently changed rows are removed for new ones.

    A row is halved once its sum reaches `max_total`, so that a habit that changed is forgotten after about as many
    calls in the same circumstance, and a tool that became rare is removed.
    """

    def __init__(self, *, max_total: float = 1000.0) -> None:
        self._max_total = max_total
        self._rows: dict[Hashable, dict[str, float]] = {}

    def add(self, circumstance: Hashable, tool: str, amount: float = 1.0) -> None:
        """Count a tool in a circumstance."""
        row = self._rows[circumstance] = self._rows.pop(circumstance, {})
        row[tool] = row.get(tool, 0.0) + amount
        if self.total(circumstance) > self._max_total:
            self._rows[circumstance] = _half(row)
        if len(self._rows) > _MAX_ROWS:
            del self._rows[next(iter(self._rows))]

    def halve(self) -> None:
        """Halve all rows, so that counts of different rows remain comparable."""
        self._rows = {circumstance: _half(row) for circumstance, row in self._rows.items()}

    def total(self, circumstance: Hashable) -> float:
        """Return the sum of a row."""
        return sum(self.row(circumstance).values())

    def row(self, circumstance: Hashable) -> Mapping[str, float]:
        """Return the counts of a row."""
        return self._rows.get(circumstance, {})

    def share(self, indexed: IndexedInput, circumstance: Hashable, otherwise: Scores) -> Scores:
        """Return the probability of each candidate, backed off to `otherwise` as Witten and Bell do.

        (count + d · otherwise) / (total + d), where d is the number of different tools in the row.
        """
        row = self.row(circumstance)
        if not row:
            return otherwise
        return (indexed.spread(row) + len(row) * otherwise) / (self.total(circumstance) + len(row))


def _half(row: Mapping[str, float]) -> dict[str, float]:
    return {tool: count / 2 for tool, count in row.items() if count > 2 * _MIN_COUNT}


def finite(values: Scores) -> Scores:
    """Return the values with NaN as 0 and infinities as 0 or 1."""
    numbers = np.asarray(values, np.float64)
    return numbers if np.isfinite(numbers).all() else np.nan_to_num(numbers, nan=0.0, posinf=1.0, neginf=0.0)


_MIN_PROBABILITY, _MAX_PROBABILITY = 1e-4, 0.999


def log_odds(probability: Scores) -> Scores:
    """Return log(p / (1 - p)) of probabilities, which are taken for no less than 0.0001 and no more than 0.999."""
    p = np.clip(probability, _MIN_PROBABILITY, _MAX_PROBABILITY)
    found: Scores = np.log(p / (1 - p))
    return found


def guess(parts: Mapping[str, Scores], confidence: float, *, explain: bool) -> Prediction:
    """Return the prediction whose log-odds are the sum of the parts, for calibration to weigh."""
    total: Scores = np.sum(list(parts.values()), axis=0)
    return Prediction(
        scores=total, contributions=dict(parts) if explain else {}, confidence=confidence, log_odds=dict(parts)
    )
