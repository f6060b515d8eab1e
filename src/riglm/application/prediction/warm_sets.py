"""The learned lists that stay the same for a whole epoch."""

from collections.abc import Callable
from typing import Final

from riglm.domain.warm_set import WarmSet
from riglm.ports.analytics import AnalyticsPort

_MOST_KEPT: Final = 10_000


class WarmSets:
    """One list for each principal and profile in each epoch, the same in every process and after every restart.

    What is stored counts: whoever comes first in an epoch decides it for all. Where nothing was learned at its first
    list there is none for the rest of the epoch, unless riglm starts anew.
    """

    def __init__(self, open_store: Callable[[], AnalyticsPort], epoch_seconds: float) -> None:
        """`epoch_seconds` is how long a list lasts."""
        self._open_store = open_store
        self._epoch_seconds = epoch_seconds
        self._known: dict[tuple[str, str], tuple[float, WarmSet | None]] = {}

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

    def stored(self, principal: str, profile: str, now: float) -> tuple[WarmSet | None, bool]:
        """The list of this epoch that is in the store, and whether there is anything to learn from; blocks."""
        with self._open_store() as store:
            found = store.get_warm_set(principal, profile, self.epoch_start(now))
            return found, found is not None or bool(store.recent_calls(1))

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
        with self._open_store() as store:
            return store.put_warm_set(made)
