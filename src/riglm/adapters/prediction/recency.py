"""What this very session did so far, as signals of the hybrid; nothing is learned."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from riglm.adapters.prediction.features import Features
from riglm.domain.prediction import Scores

_FADING: Final = 0.95


def signals(features: Features) -> Mapping[str, Scores]:
    """`age`, calls since the last use; `again` and `again_two`, what followed the last tool, or two, before.

    All are zero for tools that the session has not used.
    """
    return {
        "age": -np.log1p(features.spread(features.ages)) * features.used,
        "again": np.log1p(2 * features.spread(_followed(features.calls, 1))),
        "again_two": np.log1p(2 * features.spread(_followed(features.calls, 2))),
    }


def _followed(calls: tuple[str, ...], order: int) -> dict[str, float]:
    found: dict[str, float] = {}
    past = calls[-order:]
    for end in range(order, len(calls)):
        if calls[end - order : end] == past:
            found[calls[end]] = found.get(calls[end], 0.0) + _FADING ** (len(calls) - end)
    return found
