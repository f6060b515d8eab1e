"""What use teaches: signals, learned pairs, and how sure a context makes us."""

from dataclasses import dataclass
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
    vector: "Vector"
    confidence: float
    uses: int
    updated_at: float
    description_hash: str = ""
    terms: tuple[int, ...] = ()
    session_id: UUID | None = None
    teacher: PairSource | None = None
