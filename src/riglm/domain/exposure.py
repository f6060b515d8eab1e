"""An exposure: one selection of tools that was shown."""

from dataclasses import dataclass, replace
from typing import Final, Literal
from uuid import UUID

from riglm.domain.surface import Surface

SEARCH_SURFACE: Final = "search"
CONTEXT_SURFACE: Final = "context"
ANSWER_SURFACES: Final = frozenset({SEARCH_SURFACE, CONTEXT_SURFACE})
"""Surfaces of what a client is shown in the answer to a search or to a new context, and not in a list."""

SURFACES_WITH_OWN_TOOLS: Final = frozenset({Surface.DYNAMIC.value, Surface.STABLE.value})
"""Surfaces on which riglm's own tools stand beside the others."""

NOTHING_HIDDEN: Final = "hiding tools does not pay"
"""The reason of a list that holds every permitted tool, without meta-tools."""

Mode = Literal["enforce", "shadow", "off"]
"""Whether a selection was shown as it is, only noted while the client saw all, or not made at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """What one `tools/list`, or one answer to a search or a context, showed and hid, by whose choice, and why.

    `shown` is in the order shown; `hidden` has no order of its own and is kept sorted. In the mode `shadow` the client
    saw all tools, and the two say what it would have seen. `timestamp` is in seconds since the epoch; `predictor` is
    empty when nothing was predicted. Tokens are estimates: of the definitions shown, of those hidden, and of riglm's
    own tools among those shown.
    """

    id: UUID
    session_id: UUID
    timestamp: float
    shown: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    predictor: str = ""
    reason: str = ""
    mode: Mode = "off"
    surface: str = ""
    tokens_shown: int = 0
    tokens_hidden: int = 0
    tokens_own: int = 0

    @property
    def available(self) -> tuple[str, ...]:
        """All tools, shown or hidden: as shown when none is hidden, else sorted."""
        return available_tools(self.shown, self.hidden)

    @property
    def seen(self) -> tuple[str, ...]:
        """The tools that the client saw."""
        return self.available if self.mode == "shadow" else self.shown

    @property
    def is_list(self) -> bool:
        """Whether it was shown as a list, which a client keeps in its prompt, and not in an answer."""
        return self.surface not in ANSWER_SURFACES

    @property
    def lacks_own(self) -> bool:
        """Whether riglm's own tools would have stood beside the list, which shadow mode does not offer nor count."""
        return self.mode == "shadow" and self.surface in SURFACES_WITH_OWN_TOOLS and self.reason != NOTHING_HIDDEN

    def tokens_lacking(self, own_tokens: int) -> int:
        """What riglm's own tools, of so many tokens, would have added to `tokens_shown` and to `tokens_own`."""
        return own_tokens if self.lacks_own else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposureTotals:
    """What the selections of one mode came to, over all sessions.

    `changes` are lists that differ from the session's list before; `tokens_resent` is the sum of what those showed.
    `searches` are answers to searches. Tokens shown, hidden and own are of lists, each counted once, however often the
    client sent it to its model; answers count as riglm's own. `lists_without_own` and `changes_without_own` count the
    lists of which `Exposure.lacks_own` holds.
    """

    mode: Mode
    sessions: int
    lists: int
    changes: int
    searches: int
    tokens_shown: int
    tokens_hidden: int
    tokens_own: int
    tokens_resent: int
    lists_without_own: int
    changes_without_own: int

    @property
    def tokens_net(self) -> int:
        """What filtering saved, less what it cost."""
        return self.tokens_hidden - self.tokens_own - self.tokens_resent

    def charged(self, own_tokens: int) -> "ExposureTotals":
        """The same, with riglm's own tools of so many tokens beside every list that lacks them."""
        own = own_tokens * self.lists_without_own
        return replace(
            self,
            tokens_shown=self.tokens_shown + own,
            tokens_own=self.tokens_own + own,
            tokens_resent=self.tokens_resent + own_tokens * self.changes_without_own,
            lists_without_own=0,
            changes_without_own=0,
        )


def available_tools(shown: tuple[str, ...], hidden: tuple[str, ...]) -> tuple[str, ...]:
    """All tools: as shown when none is hidden, else sorted, so that the same tools make the same list."""
    return tuple(sorted({*shown, *hidden})) if hidden else shown
