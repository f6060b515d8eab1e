"""The words of tools' names: what is known of them holds for tools that were never called."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import numpy as np

from riglm.adapters.prediction.features import Counts, Features
from riglm.domain.prediction import Scores

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
