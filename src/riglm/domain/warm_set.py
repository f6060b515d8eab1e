"""A warm set: the tools that one principal is shown for one epoch."""

from collections.abc import Collection, Mapping
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


def mostly_used(use: Mapping[str, float], names: Collection[str], share: float, most: int) -> tuple[str, ...]:
    """The fewest tools among `names` that make up `share` of their use, the most used first; at most `most`."""
    there = {name: use[name] for name in names if use.get(name, 0.0) > 0}
    enough = share * sum(there.values())
    chosen: list[str] = []
    held = 0.0
    for name in sorted(there, key=lambda name: (-there[name], name)):
        if len(chosen) >= most or held >= enough:
            break
        chosen.append(name)
        held += there[name]
    return tuple(chosen)
