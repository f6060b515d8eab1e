"""The learned lists that stay the same for a whole epoch."""

from collections.abc import Callable
from typing import Final

from riglm.domain.warm_set import WarmSet
from riglm.ports.analytics import AnalyticsPort

_MOST_KEPT: Final = 10_000


class WarmSets:
    """One list for each principal and profile in each epoch, the same in every process and after every restart.

    What is stored counts: whoever comes first in an epoch decides it for all.
    """

    def __init__(self, open_store: Callable[[], AnalyticsPort], epoch_seconds: float) -> None:
        """`epoch_seconds` is how long a list lasts."""
        self._open_store = open_store
        self._epoch_seconds = epoch_seconds
        self._kept: dict[tuple[str, str], WarmSet] = {}

    def epoch_start(self, now: float) -> float:
        """When the epoch began that `now` lies in; both in seconds since the epoch of the clock."""
        return now - now % self._epoch_seconds

    def kept(self, principal: str, profile: str, now: float) -> WarmSet | None:
        """The list of this epoch, if it is known here."""
        found = self._kept.get((principal, profile))
        return found if found is not None and found.epoch_start == self.epoch_start(now) else None

    def stored(self, principal: str, profile: str, now: float) -> WarmSet | None:
        """The list of this epoch that is in the store, which is then kept; blocks."""
        with self._open_store() as store:
            return self._keep(store.get_warm_set(principal, profile, self.epoch_start(now)))

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
            return self._keep(store.put_warm_set(made)) or made

    def _keep(self, found: WarmSet | None) -> WarmSet | None:
        if found is not None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[found.principal, found.profile] = found
        return found
