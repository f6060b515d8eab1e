"""Warm sets: what a principal's sessions are expected to need for one period."""

from dataclasses import dataclass
from typing import Final

from riglm.domain.usage import Usage

MAX_TOOLS: Final = 500
"""Maximum number of tools whose probability is stored."""

KEPT_SECONDS: Final = 30 * 86_400.0
"""Seconds for which an unused warm set is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmSet:
    """The usage estimate that the lists of a principal, client and profile are made from until it is recomputed.

    `principal` is a keyed hash; `client` is the name that the client reports and `profile` that of the configuration.
    `created_at` is in seconds since the epoch.
    """

    principal: str
    client: str
    profile: str
    usage: Usage
    created_at: float

    def is_due(self, sessions: int, now: float, period: float) -> bool:
        """Return True if the evidence has doubled or shrunk, or the period, in seconds, has ended.

        It shrinks when a narrower scope has enough sessions, and when sessions are purged.
        """
        evidence = self.usage.evidence
        return not evidence <= sessions < 2 * evidence or abs(now - self.created_at) >= period
