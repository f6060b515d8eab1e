"""A situation, laid out for arithmetic."""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from riglm.domain.prediction import Scores, Situation

MOST_LATEST: Final = 24
"""Maximum number of different tools, the latest of a session, that are considered one by one."""
_LEAST_LIFT: Final = 0.1
_CATALOGUES: Final = 16  # one situation's candidates are mostly those of the one before


class Features:
    """What the signals of one prediction share: made for one situation and dropped after it."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.size = len(situation.candidates)
        self.column = _columns(situation.candidates)
        self.calls = situation.calls

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
        return tuple(self.ages)[:MOST_LATEST]

    @cached_property
    def used(self) -> NDArray[np.bool_]:
        """Which candidates the session has used."""
        mask = np.zeros(self.size, np.bool_)
        mask[[self.column[tool] for tool in self.ages if tool in self.column]] = True
        return mask

    @property
    def server_names(self) -> Mapping[str, int]:
        """A number for each server of a candidate, in the order of the catalog; number 0 is none."""
        return self._numbered[0]

    @property
    def servers(self) -> NDArray[np.intp]:
        """The number of each candidate's server."""
        return self._numbered[1]

    @cached_property
    def _numbered(self) -> tuple[Mapping[str, int], NDArray[np.intp]]:
        return _numbered(tuple(map(self.situation.servers.get, self.situation.candidates, repeat(""))))

    @cached_property
    def uniform(self) -> Scores:
        """The same probability for each candidate."""
        return np.full(self.size, 1.0 / max(self.size, 1))

    def server_of(self, tool: str) -> str:
        """The server of a tool, candidate or not; empty when unknown."""
        return self.situation.servers.get(tool, "")

    def spread(self, amounts: Mapping[str, float]) -> Scores:
        """Amounts by tool as an array over the candidates."""
        found = np.zeros(self.size)
        column = self.column
        if len(amounts) > len(column):  # a row keeps what other catalogues had
            for tool, place in column.items():
                found[place] = amounts.get(tool, 0.0)
            return found
        for tool, amount in amounts.items():
            index = column.get(tool)
            if index is not None:
                found[index] = amount
        return found

    def lift(self, probability: Scores) -> Scores:
        """How much likelier than by chance, as a logarithm: about 0 for chance, never below log 0.1."""
        found: Scores = np.log(probability * self.size + _LEAST_LIFT)
        return found


@lru_cache(_CATALOGUES)
def _columns(candidates: tuple[str, ...]) -> Mapping[str, int]:
    return {tool: index for index, tool in enumerate(candidates)}


@lru_cache(_CATALOGUES)
def _numbered(servers: tuple[str, ...]) -> tuple[Mapping[str, int], NDArray[np.intp]]:
    names = {name: number for number, name in enumerate(dict.fromkeys(("", *servers)))}
    numbers = np.fromiter(map(names.__getitem__, servers), np.intp, len(servers))
    numbers.flags.writeable = False
    return names, numbers
