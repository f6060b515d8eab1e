"""Features of a prediction input, with those from the words of tool names."""

import re
from collections.abc import Hashable, Mapping
from functools import cached_property, lru_cache
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from riglm.domain.prediction import PredictionInput, Scores

MAX_LATEST: Final = 24
"""Maximum number of different tools, the latest of a session, that are considered one by one."""
_MIN_LIFT: Final = 0.1
_CATALOGUES: Final = 16  # one situation's candidates are mostly those of the one before


class Features:
    """What the signals of one prediction share: made for one situation and dropped after it."""

    def __init__(self, prediction_input: PredictionInput) -> None:
        self.prediction_input = prediction_input
        self.size = len(prediction_input.candidates)
        self.column = _columns(prediction_input.candidates)
        self.calls = prediction_input.calls

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
        return _numbered(tuple(map(self.prediction_input.servers.get, self.prediction_input.candidates, repeat(""))))

    @cached_property
    def uniform(self) -> Scores:
        """The same probability for each candidate."""
        return np.full(self.size, 1.0 / max(self.size, 1))

    def server_of(self, tool: str) -> str:
        """The server of a tool, candidate or not; empty when unknown."""
        return self.prediction_input.servers.get(tool, "")

    def spread(self, amounts: Mapping[str, float]) -> Scores:
        """Amounts by tool as an array over the candidates."""
        column = self.column
        if len(amounts) * 4 > len(column):  # a row keeps what other catalogs had, and a loop in C is faster
            candidates = self.prediction_input.candidates
            return np.fromiter(map(amounts.get, candidates, repeat(0.0)), np.float64, len(candidates))
        found = np.zeros(self.size)
        for tool, amount in amounts.items():
            index = column.get(tool)
            if index is not None:
                found[index] = amount
        return found

    def lift(self, probability: Scores) -> Scores:
        """How much likelier than by chance, as a logarithm: about 0 for chance, never below log 0.1."""
        found: Scores = np.log(probability * self.size + _MIN_LIFT)
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


_FADING: Final = 0.95


def recency_signals(features: Features) -> Mapping[str, Scores]:
    """`age`, calls since the last use; `again` and `again_two`, what followed the last tool, or two, before.

    All are zero for tools that the session has not used.
    """
    return {
        "age": -np.log1p(features.spread(features.ages)) * features.used,
        "again": np.log1p(2 * features.spread(_followed(features.calls, 1))),
        "again_two": np.log1p(2 * features.spread(_followed(features.calls, 2))),
    }


def _followed(calls: tuple[str, ...], order: int) -> dict[str, float]:
    found: dict[str, float] = {}
    past = calls[-order:]
    for end in range(order, len(calls)):
        if calls[end - order : end] == past:
            found[calls[end]] = found.get(calls[end], 0.0) + _FADING ** (len(calls) - end)
    return found


_MIN: Final = 0.1
"""A count that was halved below this is forgotten."""


class CountRow:
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
            self._keep({tool: count / 2 for tool, count in self.counts.items() if count > 2 * _MIN})
        if len(self.counts) > most_tools:
            ranked = sorted(self.counts.items(), key=lambda item: -item[1])
            self._keep(dict(ranked[: most_tools * 3 // 4]) | {tool: self.counts[tool]})

    def _keep(self, counts: dict[str, float]) -> None:
        self.counts = counts
        self.total = sum(counts.values())


_NOTHING: Final = CountRow()


class Counts:
    """Rows of counts by circumstance; the least recently used circumstances are removed for new ones.

    Old counts of a row are halved when it has grown to `most_total`: a habit that changed is forgotten after about as
    many calls in the same circumstance, however rare these are.
    """

    def __init__(
        self, *, most_rows: int = 4096, most_tools: int = 256, most_total: float = 1000.0, most_entries: int = 100_000
    ) -> None:
        self._most_rows = most_rows
        self._most_tools = most_tools
        self._most_total = most_total
        self._most_entries = most_entries
        self._rows: dict[Hashable, CountRow] = {}
        self._entries = 0

    def add(self, circumstance: Hashable, tool: str, amount: float = 1.0) -> None:
        """Count a tool in a circumstance."""
        row = self._rows.pop(circumstance, None) or CountRow()
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


_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_MAX_NAME_LENGTH: Final = 256
_MAX_WORDS: Final = 12
_TRUST: Final = 5.0


@lru_cache(maxsize=4096)
def words(tool: str) -> tuple[str, ...]:
    """The different words of a tool's name, in lower case: getUserName, get_user-name and get.user.name alike."""
    return tuple(dict.fromkeys(word.lower() for word in _WORD.findall(tool[:_MAX_NAME_LENGTH])))[:_MAX_WORDS]


class Lexicon:
    """The words of a catalogue: which candidates have which words, and how common each word is."""

    def __init__(self, candidates: tuple[str, ...]) -> None:
        self.numbers: dict[str, int] = {}
        owners: list[int] = []
        members: list[int] = []
        for index, tool in enumerate(candidates):
            for word in words(tool):
                owners.append(index)
                members.append(self.numbers.setdefault(word, len(self.numbers)))
        self._owners = np.array(owners, np.intp)
        self._members = np.array(members, np.intp)
        self._size = len(candidates)
        frequency = np.bincount(self._members, minlength=len(self.numbers))
        self.share: Scores = frequency / max(len(members), 1)
        self._rarity: Scores = np.log((self._size + 1) / (frequency + 1))
        self._weight = self._sum(self._rarity) + 1.0

    def mean(self, amounts: Scores) -> Scores:
        """For each candidate, the mean of the amounts of its words, rare words counting more."""
        return self._sum(amounts * self._rarity) / self._weight

    def _sum(self, amounts: Scores) -> Scores:
        found: Scores = np.bincount(self._owners, amounts[self._members], self._size).astype(np.float64)
        return found


@lru_cache(maxsize=8)
def lexicon(candidates: tuple[str, ...]) -> Lexicon:
    """The lexicon of a catalogue, made once: a catalogue stays the same over many calls."""
    return Lexicon(candidates)


class Wording:
    """Which words come in the names of fresh tools, and after which words."""

    def __init__(self) -> None:
        self._words = Counts()

    def learn(self, features: Features, tool: str, weight: float) -> None:
        """Count the words of a fresh tool."""
        if tool in features.ages:
            return
        for word in words(tool):
            self._words.add("", word, weight)
            for before in _before(features):
                self._words.add((before,), word, weight)

    def signals(self, features: Features) -> Mapping[str, Scores]:
        """`word_use`, and `word_follows` by the words of the last tool: against what chance gives."""
        book = lexicon(features.prediction_input.candidates)
        follows = np.zeros(len(book.numbers))
        before = _before(features)
        for word in before:
            follows += self._lift(book, (word,)) / len(before)
        return {"word_use": book.mean(self._lift(book, "")), "word_follows": book.mean(follows)}

    def _lift(self, book: Lexicon, past: str | tuple[str]) -> Scores:
        row = self._words.row(past)
        found = np.zeros(len(book.numbers))
        for word, count in row.items():
            number = book.numbers.get(word)
            if number is not None:
                found[number] = count
        trust = _TRUST + len(row)
        lifted: Scores = np.log((found + trust * book.share) / (self._words.total(past) + trust) / book.share)
        return lifted


def _before(features: Features) -> tuple[str, ...]:
    return words(features.calls[-1]) if features.calls else ()
