"""An override: a decision about one tool that people made by hand."""

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class OverrideKind(StrEnum):
    """The action on the tool: show it, hide it, or keep it in every list.

    A shown or kept tool has its place in the catalog's order, for the sake of clients' prompt caches.
    """

    INCLUDE = "include"
    EXCLUDE = "exclude"
    PIN = "pin"


class OverrideScope(StrEnum):
    """Whom an override concerns."""

    SESSION = "session"
    PRINCIPAL = "principal"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A manual decision about one tool, regardless of predictions.

    `tool` is the name as clients see it. `key` says which session (its id) or which principal (its keyed hash) is
    concerned; it is empty where the scope is all, and for the principal of callers without a name, such as the local
    user. Times are in seconds since the epoch; `expires_at` is None when it holds until it is deleted.
    """

    id: UUID
    kind: OverrideKind
    tool: str
    created_at: float
    scope: OverrideScope = OverrideScope.ALL
    key: str = ""
    expires_at: float | None = None
    reason: str = ""

    def holds(self, at: float) -> bool:
        """Whether it has not expired at the given time."""
        return self.expires_at is None or at < self.expires_at

    def concerns(self, session_id: str, principal: str) -> bool:
        """True if it applies to this session of this principal."""
        if self.scope is OverrideScope.ALL:
            return True
        return self.key == (session_id if self.scope is OverrideScope.SESSION else principal)
