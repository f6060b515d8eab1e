"""How likely a session needs each tool, estimated from recorded sessions.

The probability of a tool is its share of the recorded sessions, in the narrowest scope with enough evidence, smoothed
towards the next wider scope. It is reduced by the share of uses whose tool no other session used. After a session has
used tools, recorded sessions count by the share of these tools, weighted by rarity, that they used as well (a
nearest-neighbor estimate with inverse document frequency).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

MIN_EVIDENCE: Final = 3
"""Sessions with calls from which a scope counts as learned."""

MAX_USAGE_SESSIONS: Final = 300
"""Only the latest sessions count."""

HALF_LIFE_SECONDS: Final = 14 * 86_400.0
"""A session of this age counts half as much as one of now."""

_WIDER_WEIGHT: Final = 1.0
_DISSIMILAR_WEIGHT: Final = 1e-3
_SIMILARITY_POWER: Final = 2.0


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

    `evidence` is the number of sessions behind it, 0 while nothing was learned. `probabilities` has the tools that were
    used, `requests` is the expected number of model requests and `distinct_tools` that of different tools.
    """

    evidence: int
    probabilities: Mapping[str, float]
    requests: float
    distinct_tools: float


class UsageModel:
    """Estimates from the recorded sessions of nested scopes, widest first."""

    def __init__(self, scopes: Sequence[Sequence[SessionUse]], now: float) -> None:
        """Every scope has its sessions in any order; `now` is in seconds since the epoch."""
        learned = [sessions for sessions in scopes if len(sessions) >= MIN_EVIDENCE]
        self._learned = learned
        self._sessions = tuple(learned[-1] if learned else (scopes[0] if scopes else ()))
        self._weights = [1 / (1 + max(0.0, now - each.started_at) / HALF_LIFE_SECONDS) for each in self._sessions]
        self._now = now

    @property
    def sessions(self) -> int:
        """Return the number of sessions in the scope that is used, even if they are too few to count as learned."""
        return len(self._sessions)

    @cached_property
    def usage(self) -> Usage:
        """Return the estimate for a session that has not used any tool yet."""
        probabilities: dict[str, float] = {}
        for sessions in self._learned or [self._sessions]:
            probabilities = self._smoothed(sessions, probabilities)
        total = sum(self._weights)
        if not total:
            return Usage(evidence=0, probabilities={}, requests=0.0, distinct_tools=0.0)
        pairs = list(zip(self._sessions, self._weights, strict=True))
        return Usage(
            evidence=len(self._sessions) if self._learned else 0,
            probabilities={tool: share * self._recurring for tool, share in probabilities.items()},
            requests=1 + sum(each.calls * weight for each, weight in pairs) / total,
            distinct_tools=sum(len(each.tools) * weight for each, weight in pairs) / total,
        )

    def after(self, used: Collection[str]) -> Mapping[str, float]:
        """Return the probability of each other tool in a session that has used these tools."""
        before = self.usage.probabilities
        known = set(used)
        if not known or not self._learned:
            return {tool: share for tool, share in before.items() if tool not in known}
        rarity = self._rarity
        unseen = math.log(2 * (len(self._sessions) + 1))
        whole = sum(rarity.get(tool, unseen) for tool in known)
        pair_scores: dict[str, float] = defaultdict(float)
        total = 1.0
        for each, weight in zip(self._sessions, self._weights, strict=True):
            shared = sum(rarity[tool] for tool in each.tools if tool in known)
            similar = weight * ((shared / whole) ** _SIMILARITY_POWER + _DISSIMILAR_WEIGHT)
            total += similar
            for tool in each.tools:
                pair_scores[tool] += similar
        return {tool: (pair_scores[tool] + share) / total for tool, share in before.items() if tool not in known}

    @cached_property
    def _rarity(self) -> Mapping[str, float]:
        count = len(self._sessions)
        return {tool: math.log((count + 1) / (sessions + 0.5)) + 0.1 for tool, sessions in self._use.items()}

    @cached_property
    def _recurring(self) -> float:
        """Return the share of uses whose tool another session used as well (Good and Turing's coverage).

        With each session left out in turn, it is the ratio of actual to expected uses of tools that the others used.
        One use is added, so that it exceeds 0.
        """
        once = sum(sessions == 1 for sessions in self._use.values())
        return 1 - once / (self._use.total() + 1)

    @cached_property
    def _use(self) -> Counter[str]:
        """Return in how many sessions each tool was used."""
        return Counter(tool for each in self._sessions for tool in each.tools)

    def _smoothed(self, sessions: Sequence[SessionUse], wider: Mapping[str, float]) -> dict[str, float]:
        counts: dict[str, float] = defaultdict(float)
        total = _WIDER_WEIGHT
        for each in sessions:
            weight = 1 / (1 + max(0.0, self._now - each.started_at) / HALF_LIFE_SECONDS)
            total += weight
            for tool in each.tools:
                counts[tool] += weight
        tools = counts.keys() | wider.keys()
        return {tool: (counts[tool] + _WIDER_WEIGHT * wider.get(tool, 0.0)) / total for tool in sorted(tools)}


MAX_TOOLS: Final = 500
"""Maximum number of tools whose probability is stored."""

TTL_SECONDS: Final = 30 * 86_400.0
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
