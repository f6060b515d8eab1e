"""How well the tools of a catalog suit a request, and whether any does."""

import math
from typing import Final

_WORDS_SHARE: Final = 0.5
_SIZE_SHARE: Final = 0.08
_SMALLEST: Final = 50
_MIN: Final = -0.14
_MIN_COVERAGE: Final = 0.03


def suitability(likeness: float | None, coverage: float, tools: int) -> float:
    """Return how well the best of all tools suits a request; under 0, nothing fits.

    `likeness` is the best cosine, None without vectors that mean something; `coverage` the share of the request's
    words, by rarity, that one tool has. The more tools there are, the nearer the best one comes by chance. The
    constants were fitted on requests to other catalogs: `python -m benchmarks.retrieval abstention`.
    """
    if likeness is None:
        return coverage - _MIN_COVERAGE
    chance = _SIZE_SHARE * math.log(max(tools, _SMALLEST))
    return likeness + _WORDS_SHARE * coverage - chance - _MIN
