"""What recorded sessions used, and what the next one is expected to need."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

MAX_USAGE_SESSIONS: Final = 300
"""Only the latest sessions count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUse:
    """The tools that one recorded session used with success, in the order of first use, and the number of its calls.

    `principal` and `project` are keyed hashes; `started_at` is in seconds since the epoch.
    """

    started_at: float
    tools: tuple[str, ...]
    calls: int
    client: str = ""
    principal: str = ""
    profile: str = ""
    project: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """An estimate of what the next session needs.

    `evidence` is the number of sessions behind it, 0 while nothing was learned. `probabilities` are by tool, and empty
    if no tool is likelier than another; `requests` is the expected number of model requests and `distinct_tools` that
    of different tools.
    """

    evidence: int
    probabilities: Mapping[str, float] = field(hash=False)
    requests: float
    distinct_tools: float


MAX_TOOLS: Final = 500
"""Maximum number of tools whose probability is stored."""

TTL_SECONDS: Final = 30 * 86_400.0
"""Seconds for which an unused warm set is kept."""


_GROWTH: Final = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmSetKey:
    """Whose lists a warm set is for.

    `principal` and `project` are keyed hashes; `client` is the name that the client reports and `profile` that of the
    configuration. Each may be empty.
    """

    principal: str = ""
    client: str = ""
    profile: str = ""
    project: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmSet:
    """The usage estimate that lists are made from until it is recomputed.

    `strategy` is the configured strategy with its options, and `predictor` the name of the one that made it, which may
    be a fallback. `created_at` is in seconds since the epoch.
    """

    key: WarmSetKey
    strategy: str
    predictor: str
    usage: Usage
    created_at: float

    def is_due(self, sessions: int, candidates: Collection[str], now: float, period: float) -> bool:
        """Return True if there are new candidates, the evidence has grown by 30 %, or the period has ended.

        The period is in seconds. The evidence shrinks when sessions are purged, which counts as well.
        """
        evidence, known = self.usage.evidence, self.usage.probabilities.keys()
        if 0 < len(known) < MAX_TOOLS and not known >= set(candidates):
            return True
        enough = max(evidence + 1, min(_GROWTH * evidence, MAX_USAGE_SESSIONS)) if evidence else 0
        return not evidence <= sessions < enough or abs(now - self.created_at) >= period
