"""A warm set: the tools that one principal is shown for one epoch."""

from dataclasses import dataclass
from typing import Final

KEPT_SECONDS: Final = 30 * 86_400.0
"""How long a warm set is kept after it was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmSet:
    """The tools that one principal is shown for one epoch, in the order shown.

    `principal` is a keyed hash, `profile` the name of the configuration that it was made under, `predictor` the
    strategy that made it. `epoch_start` and `created_at` are in seconds since the epoch.
    """

    principal: str
    profile: str
    epoch_start: float
    tools: tuple[str, ...]
    predictor: str
    created_at: float
