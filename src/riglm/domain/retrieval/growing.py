"""Arrays that grow."""

from typing import Any

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

    def append(self, row: Any) -> None:
        """Add one at the end."""
        if self._count == len(self._kept):
            self._kept = np.concatenate([self._kept, np.zeros_like(self._kept)])
        self._kept[self._count] = row
        self._count += 1
