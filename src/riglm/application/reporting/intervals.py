"""How sure a number is that was counted in a few sessions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_Z: Final = 1.959964
"""95 % of a normal distribution lie within so many standard deviations."""
_DRAWS: Final = 2_000
_FEW_DRAWS: Final = 400
_MANY: Final = 20_000
"""Of more sessions fewer draws do: their intervals are narrow."""
_NUMBERS_AT_ONCE: Final = 2_000_000
_ENDS: Final = (0.025, 0.975)
_SEED: Final = 7
"""The same record gives the same report."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the true number lies in 95 of 100 cases."""

    low: float
    high: float


def wilson(hits: int, of: int) -> Interval | None:
    """Of a share between 0 and 1, for things that have nothing to do with each other; None of nothing."""
    if not of:
        return None
    share, square = hits / of, _Z * _Z / of
    middle = (share + square / 2) / (1 + square)
    reach = _Z * math.sqrt(share * (1 - share) / of + square / of / 4) / (1 + square)
    return Interval(max(0.0, middle - reach), min(1.0, middle + reach))


def share_by_session(hits: Sequence[int], calls: Sequence[int]) -> Interval | None:
    """Of a share between 0 and 1 that was counted in sessions, hits and calls of each; None without calls.

    Calls of one session are alike, so whole sessions are drawn many times (bootstrap). Where these agree by chance,
    as when nobody missed anything in a few sessions, that says too much: the interval is never narrower than Wilson's.
    """
    plain = wilson(sum(hits), sum(calls))
    if plain is None:
        return None
    low, high = _ends(np.array(hits, dtype=np.float64), np.array(calls, dtype=np.float64))
    return Interval(max(0.0, min(plain.low, low)), min(1.0, max(plain.high, high)))


def ratio_by_session(parts: Sequence[float], wholes: Sequence[float]) -> Interval | None:
    """Return the interval of the ratio of two sums over sessions; None with fewer than two sessions."""
    if len(parts) < 2:  # one session says nothing of others
        return None
    return Interval(*_ends(np.array(parts, dtype=np.float64), np.array(wholes, dtype=np.float64)))


def _ends(parts: NDArray[np.float64], wholes: NDArray[np.float64]) -> tuple[float, float]:
    """Between what the sum of parts by that of wholes lies, over draws of as many sessions as there are."""
    count, random = len(parts), np.random.default_rng(_SEED)
    ratios = np.empty(_DRAWS if count <= _MANY else _FEW_DRAWS)
    at_once = max(1, _NUMBERS_AT_ONCE // count)
    for start in range(0, len(ratios), at_once):
        drawn = random.integers(0, count, size=(min(at_once, len(ratios) - start), count))
        ratios[start : start + len(drawn)] = parts[drawn].sum(axis=1) / np.maximum(wholes[drawn].sum(axis=1), 1.0)
    middle = float(parts.sum() / max(wholes.sum(), 1.0))
    low, high = (middle + _stretch(count) * (float(end) - middle) for end in np.quantile(ratios, _ENDS))
    return low, high


def _stretch(count: int) -> float:
    """How much wider an interval from few sessions must be: their spread is smaller, and itself not well known.

    By Student's distribution in place of the normal one, as far as the first term of its expansion.
    """
    free = max(count - 1, 1)
    return math.sqrt(count / free) * (1 + (_Z * _Z + 1) / (4 * free))
