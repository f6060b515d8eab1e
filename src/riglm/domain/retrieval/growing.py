"""Arrays that grow."""

from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray


class GrowingRows:
    """Rows of equal width, or numbers if the width is 0; appending costs the same however many there are."""

    def __init__(self, width: int, dtype: DTypeLike) -> None:
        self._count = 0
        self._kept: NDArray[Any] = np.zeros((64, width) if width else 64, dtype)

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
            self._kept = np.concatenate([self._kept, np.zeros_like(self._kept)])
        self._kept[self._count] = row
        self._count += 1
