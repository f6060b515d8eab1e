"""Percentiles that are values which occurred."""

import math
from collections.abc import Sequence


def nearest_rank(ascending: Sequence[float], percent: int) -> float:
    """The smallest value that at least so many percent do not exceed; 0 when there is none."""
    return ascending[math.ceil(len(ascending) * percent / 100) - 1] if ascending else 0.0
