"""Whether anything fits a request at all."""

import math
from typing import Final

_WORDS_SHARE: Final = 0.5
_SIZE_SHARE: Final = 0.08
_SMALLEST: Final = 50
_LEAST: Final = -0.14
_LEAST_COVERAGE: Final = 0.03


def fits(likeness: float | None, coverage: float, tools: int) -> bool:
    """Whether the best of so many tools is near enough.

    `likeness` is the best cosine, None without vectors that mean something; `coverage` the share of the request's
    words, by rarity, that one tool has. The more tools there are, the nearer the best one comes by chance. The
    constants were fitted on requests to other catalogues: `python -m benchmarks.retrieval abstention`.
    """
    if likeness is None:
        return coverage >= _LEAST_COVERAGE
    chance = _SIZE_SHARE * math.log(max(tools, _SMALLEST))
    return likeness + _WORDS_SHARE * coverage - chance >= _LEAST
