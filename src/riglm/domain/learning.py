"""What use teaches: signals, learned pairs, what recorded sessions used, and warm sets."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.prediction import Vector
from riglm.domain.session import DEFAULT_PROFILE

SIGNALS: Final = {DiscoveryMethod.LISTED: 1.0, DiscoveryMethod.SEARCHED: 1.5, DiscoveryMethod.NAMED: 0.5}
"""How informative a call is: of a tool that was listed, of one that a search had to find, of one that was neither."""


_PROFILE_SEPARATOR: Final = "/"


def learning_scope(principal: str, profile: str) -> str:
    """Return who shares what is learned: a principal, as a keyed hash or empty for all, in one profile."""
    return principal if profile in ("", DEFAULT_PROFILE) else f"{principal}{_PROFILE_SEPARATOR}{profile}"


def parts_of_scope(scope: str) -> tuple[str, str]:
    """Return the principal and the profile of a learning scope."""
    principal, _, profile = scope.partition(_PROFILE_SEPARATOR)
    return principal, profile or DEFAULT_PROFILE


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSource:
    """Whose session taught something: its client, the name that this gave itself, and its principal, all hashed."""

    client_id: str
    client_name: str
    principal: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnedPair:
    """A context and a tool that was used in it.

    `id` is a keyed hash of scope, tool, model and text, so that the same example is stored once. `scope` is the
    principal and profile that it counts for, see `learning_scope`. `confidence` is a moving average of signals, `uses`
    the number of sessions that confirmed it, `updated_at` in seconds since the epoch. `description_hash` is of the
    tool's definition: what was learned of a tool that has changed its words does not count. `terms` are keyed hashes of
    the context's words, for matching by word; the text of the context itself is not kept. `session_id` is the session
    of the last example, and `teacher` its source, in case the session is purged before the pair is stored. The store
    keeps all sources, to attribute examples to principals, and does not return them.
    """

    id: UUID
    scope: str
    tool: str
    model: str
    vector: Vector
    confidence: float
    uses: int
    updated_at: float
    description_hash: str = ""
    terms: tuple[int, ...] = ()
    session_id: UUID | None = None
    teacher: PairSource | None = None


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

WARM_SET_TTL_SECONDS: Final = 30 * 86_400.0
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
