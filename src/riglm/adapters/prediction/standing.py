"""A place among the first for tools in use that are likely, regardless of other signals."""

from typing import Final

import numpy as np

from riglm.adapters.prediction.weighing import Mask
from riglm.domain.prediction import Scores

FIRST: Final = 15
"""A list of the usual length."""

KEPT: Final = 4
"""Maximum number of used tools that are kept in it."""


def kept(lifted: Scores, likely: Scores, used: Mask) -> Scores:
    """The lifted scores, with the best used candidates that are among the first by likelihood still among them.

    The first are `FIRST`; at most `KEPT` candidates are raised, and no further than needed.
    """
    if not used.any() or likely.size <= FIRST:
        return lifted
    bar = np.partition(likely, -FIRST)[-FIRST]
    columns = np.flatnonzero(used & (likely >= bar))
    best = columns[np.argsort(-likely[columns], kind="stable")[:KEPT]]
    fresh, before = lifted[~used], FIRST - best.size
    if not best.size or fresh.size <= before:
        return lifted
    found = lifted.copy()
    floor = float(np.partition(fresh, -before - 1)[-before - 1])
    for column in best[::-1]:
        floor = float(np.nextafter(floor, np.inf))
        found[column] = floor = max(float(found[column]), floor)
    return found
