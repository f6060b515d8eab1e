"""Where warm sets are kept, and the recorded use that they are made from."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from riglm.domain.usage import MAX_SESSIONS, SessionUse
from riglm.domain.warm_set import WarmSet


class WarmSetsPort(Protocol):
    """Stores warm sets, so that all processes agree on them and restarts do not change them.

    Methods block; a failure raises `AnalyticsUnavailable`.
    """

    @abstractmethod
    def get_warm_set(self, principal: str, client: str, profile: str) -> WarmSet | None:
        """Return the warm set of a principal, client and profile, None if there is none."""

    @abstractmethod
    def put_warm_set(self, warm_set: WarmSet, replaces: float | None) -> WarmSet:
        """Store a warm set in place of the one created at `replaces`, and return the one that is stored.

        If another process has stored one in the meantime, that one stays. Warm sets created more than
        `warm_set.KEPT_SECONDS` before the given one are removed.
        """

    @abstractmethod
    def forget_warm_sets(self) -> None:
        """Remove all warm sets: the next session makes a new one from what is recorded by then."""

    @abstractmethod
    def list_session_uses(self, principal: str | None = None, limit: int = MAX_SESSIONS) -> Sequence[SessionUse]:
        """Return the latest sessions with a successful call of an upstream tool, newest first.

        Without a principal they are those of all. Failed calls and calls of meta-tools do not count.
        """
