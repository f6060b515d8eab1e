"""How often what was learned would have foretold what came next."""

from typing import Final

_MEMORY: Final = 200
_DOUBT: Final = 5.0


class Reliability:
    """The share of lessons that earlier ones predicted, over about the last two hundred, low at first."""

    def __init__(self) -> None:
        self._right = 0.0
        self._seen = 0.0

    def note(self, foretold: bool) -> None:
        """A lesson came; `True` if its tool was among those of similar contexts."""
        keep = 1 - 1 / _MEMORY
        self._right = self._right * keep + foretold
        self._seen = self._seen * keep + 1

    @property
    def trust(self) -> float:
        """Between 0 and 1; the square of the share, so that being right one time in four counts for little."""
        return (self._right / (self._seen + _DOUBT)) ** 2
