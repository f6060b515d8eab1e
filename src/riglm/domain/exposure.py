"""An exposure: one selection of tools that was shown."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal
from uuid import UUID

from riglm.domain.invocation import DiscoveryMethod

SEARCH_SURFACE: Final = "search"
CONTEXT_SURFACE: Final = "context"
ANSWER_SURFACES: Final = frozenset({SEARCH_SURFACE, CONTEXT_SURFACE})
"""Surfaces of what a client is shown in the answer to a search or to a new context, and not in a list."""

NOTHING_HIDDEN: Final = "hiding tools does not pay"
"""The reason of a list that holds every permitted tool, without meta-tools."""

Mode = Literal["enforce", "shadow", "off"]
"""Whether a selection was shown as it is, only noted while the client saw all, or not made at all."""


class Surface(StrEnum):
    """How a selection reaches the client.

    `DYNAMIC`: the list itself is short and changes with the session. `STABLE`: the list is a learned warm set that
    lasts for an epoch, and what is needed now travels in results. `HINTS`: the list is whole, and the warm set has
    preload hints. `FULL`: the list is whole.
    """

    DYNAMIC = "dynamic"
    STABLE = "stable"
    HINTS = "hints"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class ShownTools:
    """The tools that a list, or an answer to a search or a context, showed and hid, by whose choice, and why.

    `shown` is in the order shown; `hidden` has no defined order. In the mode `shadow` the client saw all tools, and
    these are those that it would have seen. On the surface `hints` the client got all tools as well: `shown` have a
    preload hint, and `hidden` are those that it defers. `predictor` is empty when nothing was predicted. Tokens are
    estimates: of the definitions shown, of those hidden, and of the meta-tools among those shown.
    """

    shown: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    predictor: str = ""
    reason: str = ""
    mode: Mode = "off"
    surface: str = ""
    tokens_shown: int = 0
    tokens_hidden: int = 0
    tokens_own: int = 0

    @property
    def hides(self) -> bool:
        """Return True if a list hid tools, or if the client defers some and loads others."""
        return bool(self.hidden and (self.shown or self.surface != Surface.HINTS))

    def is_hit(self, tool: str, found: DiscoveryMethod) -> bool | None:
        """Return True if a tool was in the list, or if riglm had suggested it; None if the tool was not there at all.

        In shadow mode and with preload hints clients find hidden tools without riglm.
        """
        if tool not in self.shown and tool not in self.hidden:
            return None
        is_suggested = found is DiscoveryMethod.LISTED and self.mode != "shadow" and self.surface != Surface.HINTS
        return tool in self.shown or is_suggested


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure(ShownTools):
    """The record of a list, or of an answer to a search or a context, in a session.

    `hidden` is sorted, and `timestamp` in seconds since the epoch.
    """

    id: UUID
    session_id: UUID
    timestamp: float

    @property
    def available(self) -> tuple[str, ...]:
        """All tools: as shown when none is hidden, else sorted, so that the same tools make the same list."""
        return tuple(sorted({*self.shown, *self.hidden})) if self.hidden else self.shown

    @property
    def tokens_all(self) -> int:
        """Return the tokens of all tools, shown or hidden, without the meta-tools."""
        return self.tokens_shown - self.tokens_own + self.tokens_hidden

    @property
    def tokens_saved(self) -> int:
        """Return the tokens that riglm kept out of the prompt: none on `hints`, where the client defers tools."""
        return 0 if self.surface == Surface.HINTS else self.tokens_hidden

    @property
    def is_list(self) -> bool:
        """Whether it was shown as a list, which a client keeps in its prompt, and not in an answer."""
        return self.surface not in ANSWER_SURFACES


@dataclass(slots=True, kw_only=True)
class TokenTally:
    """Estimated tokens of lists, each counted once, however often the client sent it to its model.

    `meta_tools` are those of the meta-tools and of their results, `resent` those of lists that replaced another.
    """

    shown: int = 0
    hidden: int = 0
    meta_tools: int = 0
    resent: int = 0

    @property
    def net(self) -> int:
        """What filtering saved, less what it cost."""
        return self.hidden - self.meta_tools - self.resent

    def add(self, exposure: "Exposure", *, changed: bool = False) -> None:
        """Add a list, or the result of a meta-tool; `changed` is True for a list that replaced another."""
        if not exposure.is_list:
            self.meta_tools += exposure.tokens_shown
            return
        self.shown += exposure.tokens_shown
        self.hidden += exposure.tokens_saved
        self.meta_tools += exposure.tokens_own
        self.resent += exposure.tokens_shown if changed else 0
