"""Percentiles that are values which occurred."""

import math
from collections.abc import Sequence


def nearest_rank(ascending: Sequence[float], percent: int) -> float:
    """Return the smallest value that at least `percent` percent do not exceed; 0 without values."""
    return ascending[math.ceil(len(ascending) * percent / 100) - 1] if ascending else 0.0
