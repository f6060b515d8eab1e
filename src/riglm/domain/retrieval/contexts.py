"""The contexts that something was learned in, and how similar they are to another."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from riglm.domain.learning import parts_of_scope
from riglm.domain.prediction import Scores, Vector

_FIRST_ROWS: Final = 64
_BLOCK_ROWS: Final = 512
_MAX_BYTE: Final = 127
_TINY: Final = 1e-30


class GrowingRows:
    """Rows of equal width, or numbers if the width is 0, with space for an eighth more of them."""

    def __init__(self, width: int, dtype: DTypeLike) -> None:
        self._count = 0
        self._kept: NDArray[Any] = np.zeros((_FIRST_ROWS, width) if width else _FIRST_ROWS, dtype)

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> NDArray[Any]:
        """What was appended; changing it changes what is kept."""
        return self._kept[: self._count]

    @classmethod
    def of(cls, rows: NDArray[Any]) -> Self:
        """One that holds these rows, or numbers, and takes more."""
        made = cls(rows.shape[1] if rows.ndim == 2 else 0, rows.dtype)
        if len(rows):
            made._kept = rows
        made._count = len(rows)
        return made

    def chosen(self, which: NDArray[Any]) -> Self:
        """Another with the rows at these places, or where this mask is true."""
        return self.of(self.rows[which])

    def append(self, row: Any) -> None:
        """Add one at the end."""
        if self._count == len(self._kept):
            more = max(_FIRST_ROWS, len(self._kept) // 8)
            self._kept = np.concatenate([self._kept, np.zeros((more, *self._kept.shape[1:]), self._kept.dtype)])
        self._kept[self._count] = row
        self._count += 1


class QuantizedVectors:
    """Vectors of equal width with a byte for each component, and the number of the context that each belongs to.

    They take a fourth of the memory; a cosine of unit vectors is off by less than 0.005.
    """

    def __init__(self, width: int) -> None:
        self._rows = GrowingRows(width, np.int8)
        self._scales = GrowingRows(0, np.float32)
        self._numbers = GrowingRows(0, np.int64)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The contexts' numbers, in the order of the vectors."""
        return self._numbers.rows

    def append(self, vector: Vector, number: int) -> None:
        """Add the vector of a context."""
        row = np.rint(vector * (_MAX_BYTE / max(float(np.abs(vector).max()), _TINY)))
        self._rows.append(row)
        self._scales.append(vector @ vector / max(float(row @ vector), _TINY))  # with itself, the product is exact
        self._numbers.append(number)

    def renumber(self, numbers: NDArray[np.int64]) -> None:
        """Give each context its new number, and leave out those that have none, -1."""
        renumbered = numbers[self.numbers]
        kept = renumbered >= 0
        self._rows, self._scales = self._rows.chosen(kept), self._scales.chosen(kept)
        self._numbers = GrowingRows.of(renumbered[kept])

    def products(self, vector: Vector) -> Vector:
        """The dot product of each vector with another of their width."""
        rows = self._rows.rows
        found = np.empty(len(rows), np.float32)
        for first in range(0, len(rows), _BLOCK_ROWS):  # a block as floats stays in the processor's cache
            found[first : first + _BLOCK_ROWS] = rows[first : first + _BLOCK_ROWS] @ vector
        return np.asarray(found * self._scales.rows)


class Names:
    """Numbers for strings of which there are few."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, number: int) -> str:
        return self._names[number]

    def add(self, name: str) -> int:
        """The number of a name, a new one if it has none."""
        number = self._numbers.setdefault(name, len(self._names))
        if number == len(self._names):
            self._names.append(name)
        return number

    def find(self, name: str) -> int:
        """The number of a name, or -1."""
        return self._numbers.get(name, -1)

    def keep(self, numbers: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
        """Forget the names that none of these numbers is of; return the new numbers, in their order."""
        left, numbered = np.unique(numbers, return_inverse=True)
        self._names = [self._names[number] for number in left]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        return np.asarray(numbered)


WORDS_WEIGHT: Final = 0.3
"""Weight of shared words relative to the similarity of vectors."""

MIN_CONTEXTS: Final = 10
"""With fewer contexts of a profile, those of all profiles count."""


class ContextSimilarity(NamedTuple):
    """How similar each context is, between 0 and 1, and -1 where it does not count for the scope.

    `meaning` is the cosine of the vectors, `overall` weighs shared words with it; where vectors cannot be compared,
    both are the shared words alone.
    """

    overall: Scores
    meaning: Scores


class LearnedContexts:
    """Grows by one context at a time; contexts are numbered in the order they came."""

    def __init__(self) -> None:
        self._scopes = Names()
        self._scope = GrowingRows(0, np.int64)
        self._vectors: dict[tuple[str, int], QuantizedVectors] = {}
        self._vocabulary: dict[int, int] = {}  # from 1: each context has 0 first, so that none is without words
        self._term = GrowingRows(0, np.int64)
        self._first_term = GrowingRows(0, np.int64)
        self._weighed: tuple[Scores, Scores] | None = None

    def __len__(self) -> int:
        return len(self._scope)

    def add(self, scope: str, model: str, vector: Vector, terms: Sequence[int]) -> int:
        """Take in a context and give its number. A vector of no length is none."""
        number = len(self)
        self._weighed = None
        self._scope.append(self._scopes.add(scope))
        if len(vector):
            self._vectors.setdefault((model, len(vector)), QuantizedVectors(len(vector))).append(vector, number)
        self._first_term.append(len(self._term))
        self._term.append(0)
        for term in set(terms):
            self._term.append(self._vocabulary.setdefault(term, len(self._vocabulary) + 1))
        return number

    def keep(self, kept: NDArray[np.int64]) -> None:
        """Forget all other contexts; those of these numbers, in ascending order, are renumbered."""
        number = np.full(len(self), -1, np.int64)
        number[kept] = np.arange(len(kept))
        for vectors in self._vectors.values():
            vectors.renumber(number)
        self._vectors = {key: vectors for key, vectors in self._vectors.items() if len(vectors.numbers)}
        lengths = np.diff(self._first_term.rows, append=len(self._term))
        terms = self._term.rows[np.repeat(number >= 0, lengths)]
        self._first_term = GrowingRows.of(np.cumsum(lengths[kept]) - lengths[kept])
        self._scope = GrowingRows.of(self._scopes.keep(self._scope.rows[kept]))
        is_left = np.bincount(terms, minlength=len(self._vocabulary) + 1) > 0
        is_left[0] = True
        place = np.cumsum(is_left) - 1
        self._term = GrowingRows.of(place[terms])
        self._vocabulary = {term: int(place[old]) for term, old in self._vocabulary.items() if is_left[old]}
        self._weighed = None

    def similarity(self, scope: str, model: str, vector: Vector, terms: Sequence[int]) -> ContextSimilarity:
        """How similar each context is that was learned in the scope.

        While there are few of its profile, those of all profiles of the principal count.
        """
        shared = self._shared_words(terms)
        overall, meaning = shared.copy(), shared.copy()
        if vectors := self._vectors.get((model, len(vector))):
            compared = vectors.numbers
            meaning[compared] = np.clip(vectors.products(vector), 0.0, 1.0)
            overall[compared] = (meaning[compared] + WORDS_WEIGHT * shared[compared]) / (1 + WORDS_WEIGHT)
        elsewhere = ~self._counts_for(scope)
        overall[elsewhere] = meaning[elsewhere] = -1.0
        return ContextSimilarity(overall, meaning)

    def _counts_for(self, scope: str) -> NDArray[np.bool_]:
        own = np.asarray(self._scope.rows == self._scopes.find(scope))
        if np.count_nonzero(own) >= MIN_CONTEXTS:
            return own
        principal, _ = parts_of_scope(scope)
        numbers = [at for at in range(len(self._scopes)) if parts_of_scope(self._scopes[at])[0] == principal]
        return np.isin(self._scope.rows, numbers)

    def _shared_words(self, terms: Sequence[int]) -> Scores:
        """The cosine of the contexts' words with those of another, rare words weighing more."""
        wanted = set(terms)
        known = [at for term in wanted if (at := self._vocabulary.get(term)) is not None]
        if not known:
            return np.zeros(len(self))
        rarity, own = self._weighed_words()
        asked = np.zeros(len(rarity))
        asked[known] = rarity[known]
        unknown = (len(wanted) - len(known)) * np.log1p(len(self)) ** 2
        common = np.add.reduceat(asked[self._term.rows], self._first_term.rows)
        return np.asarray(common / np.maximum(own * np.sqrt(asked.sum() + unknown), 1e-9))

    def _weighed_words(self) -> tuple[Scores, Scores]:
        """How much each word counts, and how much all words of each context; kept until a context comes."""
        if self._weighed is None:
            found = np.bincount(self._term.rows)
            rarity = np.log1p(len(self) / np.maximum(found, 1)) ** 2
            rarity[0] = 0.0
            own = np.add.reduceat(rarity[self._term.rows], self._first_term.rows)
            self._weighed = rarity, np.sqrt(own)
        return self._weighed
