"""The learned lists that stay the same for a whole epoch."""

from collections.abc import Callable, Collection
from typing import Final

from riglm.domain.warm_set import WarmSet, mostly_used
from riglm.ports.warm_sets import WarmSetsPort

_MOST_KEPT: Final = 10_000


class WarmSets:
    """One list for each principal and profile in each epoch, the same in every process and after every restart.

    What is stored counts: whoever comes first in an epoch decides it for all. Where nothing was learned at its first
    list there is none for the rest of the epoch, unless riglm starts anew.
    """

    def __init__(self, store: Callable[[], WarmSetsPort], epoch_seconds: float, coverage: float = 0.95) -> None:
        """`epoch_seconds` is how long a list lasts, `coverage` the share of recent use that one made from use holds.

        `store` gives the store, which is asked on the thread that blocks for it.
        """
        self._store = store
        self._epoch_seconds = epoch_seconds
        self._coverage = coverage
        self._known: dict[tuple[str, str], tuple[float, WarmSet | None]] = {}

    def follow(self, epoch_seconds: float, coverage: float) -> None:
        """Go on with another length of epochs, and with lists that hold another share."""
        self._epoch_seconds = epoch_seconds
        self._coverage = coverage

    def epoch_start(self, now: float) -> float:
        """When the epoch began that `now` lies in; both in seconds since the epoch of the clock."""
        return now - now % self._epoch_seconds

    def kept(self, principal: str, profile: str, now: float) -> WarmSet | None:
        """The list of this epoch, if it is known here."""
        start, found = self._known.get((principal, profile), (None, None))
        return found if start == self.epoch_start(now) else None

    def is_settled(self, principal: str, profile: str, now: float) -> bool:
        """Whether it is known here what the list of this epoch is, or that there is none."""
        return self._known.get((principal, profile), (None,))[0] == self.epoch_start(now)

    def settle(self, principal: str, profile: str, now: float, found: WarmSet | None) -> None:
        """Take note of the list of this epoch, or that there is none."""
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        self._known[principal, profile] = (self.epoch_start(now), found)

    def reread(self) -> None:
        """Ask the store again: lists may be gone from it."""
        self._known.clear()

    def stored(self, principal: str, profile: str, now: float) -> WarmSet | None:
        """The list of this epoch that is in the store; blocks."""
        return self._store().get_warm_set(principal, profile, self.epoch_start(now))

    def most_used(self, principal: str | None, names: Collection[str], most: int, now: float) -> tuple[str, ...]:
        """The tools among `names` that a principal, or anybody, used most of late, the most used first; blocks."""
        return mostly_used(self._store().recent_use(now, principal), names, self._coverage, most)

    def decide(self, principal: str, profile: str, tools: tuple[str, ...], predictor: str, now: float) -> WarmSet:
        """Store the list of this epoch unless there is one by now; the one that counts; blocks."""
        made = WarmSet(
            principal=principal,
            profile=profile,
            epoch_start=self.epoch_start(now),
            tools=tools,
            predictor=predictor,
            created_at=now,
        )
        return self._store().put_warm_set(made)
