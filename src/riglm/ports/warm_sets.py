"""Where warm sets are kept."""

from abc import abstractmethod
from typing import Protocol

from riglm.domain.warm_set import WarmSet


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
