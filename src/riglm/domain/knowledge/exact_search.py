"""Exact nearest neighbours from codes of a quarter of the vectors' size.

Each vector is kept as small integers with a scale (symmetric scalar quantisation) and with the length of what that
loses. A product with the code is then off by no more than that length (Cauchy-Schwarz), so most rows can be ruled out
without their vectors, and those that are left are few enough to be fetched and compared exactly: the answer is that of
comparing all.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from riglm.domain.prediction import Vector

_MAX_CODE: Final = 127
_ROW_BATCH_SIZE: Final = 256  # as numbers of single precision they stay in the processor's cache
_ROUNDING: Final = 1e-5  # the error of such sums of products in single precision, generously
_GROWTH: Final = 1.5
_Number = TypeVar("_Number", bound=np.generic)


class Codes:
    """Vectors of one length, by position in the order in which they were added; memory is reserved ahead."""

    def __init__(self, dimensions: int, capacity: int = 0) -> None:
        """Reserve memory for `capacity` vectors."""
        self.dimensions: Final = dimensions
        self._count = 0
        self._codes: NDArray[np.int8] = np.empty((capacity, dimensions), np.int8)
        self._scales: NDArray[np.float32] = np.empty(capacity, np.float32)
        self._losses: NDArray[np.float32] = np.empty(capacity, np.float32)

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """What is held in memory."""
        return self._codes.nbytes + self._scales.nbytes + self._losses.nbytes

    def add(self, vectors: "Vector") -> None:
        """Take rows."""
        end = self._count + len(vectors)
        if end > len(self._codes):
            self._make_room(max(end, int(self._count * _GROWTH)))
        scales = np.abs(vectors).max(axis=1, initial=0.0) / _MAX_CODE
        scales[scales == 0] = 1.0
        codes = np.rint(vectors / scales[:, None]).astype(np.int8)
        self._codes[self._count : end] = codes
        self._scales[self._count : end] = scales
        self._losses[self._count : end] = np.linalg.norm(vectors - codes * scales[:, None], axis=1)
        self._count = end

    def replace(self, position: int, vector: "Vector") -> None:
        """Another vector at a position."""
        count, self._count = self._count, position
        try:
            self.add(vector[None, :])
        finally:
            self._count = count

    def nearest(
        self,
        asked: "Vector",
        most: int,
        exact: "Callable[[Sequence[int]], Vector]",
        wanted: "NDArray[np.bool_] | None" = None,
    ) -> list[tuple[int, float]]:
        """Positions and cosine similarities of the `most` rows nearest to a vector, all of unit length, best first.

        `exact` gives the vectors at positions, in their order, with NaN for a deleted one; it is called for a few
        hundred at a time, however many are alike. `wanted` says which rows count.
        """
        positions = np.arange(self._count) if wanted is None else np.flatnonzero(wanted[: self._count])
        if not len(positions) or most < 1:
            return []
        scores, slack = self._estimated(asked, positions, whole=wanted is None)
        if len(positions) > most:
            lower = scores - slack
            bar = np.partition(lower, len(lower) - most)[len(lower) - most]
            positions = positions[scores + slack >= bar]
        found = np.concatenate([exact(some.tolist()) @ asked for some in _parts(positions)])
        there = np.flatnonzero(~np.isnan(found))
        order = there[np.lexsort((positions[there], -found[there]))][:most]
        return [(int(positions[place]), float(found[place])) for place in order]

    def _estimated(
        self, asked: "Vector", positions: "NDArray[np.intp]", *, whole: bool
    ) -> "tuple[NDArray[np.float32], NDArray[np.float32]]":
        """Products with the codes, and by how much each may be off at most."""
        scores = np.empty(len(positions), np.float32)
        numbers = np.empty((_ROW_BATCH_SIZE, self.dimensions), np.float32)
        for start in range(0, len(positions), _ROW_BATCH_SIZE):
            stop = min(start + _ROW_BATCH_SIZE, len(positions))
            rows = numbers[: stop - start]
            rows[...] = self._codes[start:stop] if whole else self._codes[positions[start:stop]]
            np.dot(rows, asked, out=scores[start:stop])
        scores *= self._scales[positions]
        return scores, self._losses[positions] * np.float32(np.linalg.norm(asked)) + np.float32(_ROUNDING)

    def _make_room(self, rows: int) -> None:
        self._codes = _grown(self._codes, rows)
        self._scales = _grown(self._scales, rows)
        self._losses = _grown(self._losses, rows)


def _parts(positions: "NDArray[np.intp]") -> "list[NDArray[np.intp]]":
    return [positions[start : start + _ROW_BATCH_SIZE] for start in range(0, len(positions), _ROW_BATCH_SIZE)]


def _grown(array: "NDArray[_Number]", rows: int) -> "NDArray[_Number]":
    grown = np.empty((rows, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown
