"""Where warm sets are kept."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Final, Protocol

from riglm.domain.warm_set import WarmSet

MOST_USES: Final = 10_000
"""So many of the latest uses count, however long ago they were."""

HALF_SECONDS: Final = 14 * 86_400.0
"""A use of this age counts half as much as one of now."""


class WarmSetsPort(Protocol):
    """Keeps warm sets, so that processes agree on them and restarts do not change them.

    Methods block; a failure arrives as `AnalyticsUnavailable`.
    """

    @abstractmethod
    def get_warm_set(self, principal: str, profile: str, epoch_start: float) -> WarmSet | None:
        """The warm set of a principal and profile for one epoch, None when there is none yet."""

    @abstractmethod
    def put_warm_set(self, warm_set: WarmSet) -> WarmSet:
        """Store a warm set unless its epoch has one, and give the one that is stored.

        Those made more than `warm_set.KEPT_SECONDS` before it are removed.
        """

    @abstractmethod
    def forget_warm_sets(self) -> None:
        """Remove all warm sets: whoever asks next for that of an epoch makes another one, of what is known by then."""

    @abstractmethod
    def recent_use(self, now: float, principal: str | None = None) -> Mapping[str, float]:
        """How much each tool was used of late, in the sessions of a principal or in all.

        Each of the latest `MOST_USES` successful calls counts 1 / (1 + its age / `HALF_SECONDS`). Calls of riglm's
        own tools do not count.
        """
