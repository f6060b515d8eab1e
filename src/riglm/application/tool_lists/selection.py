"""The tools that one client gets: in a list, or in the result of a meta-tool."""

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from riglm.domain.exposure import Exposure, Mode
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.session import uuid7


@dataclass(frozen=True, slots=True)
class ListSelection:
    """The tools that a client gets and those that are hidden from it, in the catalog's order.

    `raw` is a JSON array of the entries of a list; with `is_passthrough` they are those of the upstream's response,
    unchanged. In shadow mode `shown` and `hidden` are hypothetical. Denied tools are in neither. `preloaded` are the
    tools with a preload hint, on the surface `hints`: the client defers the others. `meta_tools` are those that the
    session can call. Tokens are estimates, as in an exposure. Selections that differ in bytes, tokens or
    meta-tools only are equal.
    """

    shown: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    preloaded: tuple[str, ...] | None = None
    raw: bytes = field(default=b"", compare=False)
    is_passthrough: bool = field(default=False, compare=False)
    meta_tools: tuple[str, ...] = field(default=(), compare=False)
    predictor: str = ""
    reason: str = ""
    mode: Mode = "off"
    surface: str = ""
    tokens_shown: int = field(default=0, compare=False)
    tokens_hidden: int = field(default=0, compare=False)
    tokens_own: int = field(default=0, compare=False)

    @property
    def in_prompt(self) -> tuple[str, ...]:
        """Return the tools whose definitions the client sends to its model with the first request."""
        return self.shown if self.preloaded is None else self.preloaded

    def is_hit(self, tool: str, found: DiscoveryMethod) -> bool | None:
        """Return True if a tool was in the list, or if riglm had suggested it; in shadow mode, if it would have been.

        None if the list hid nothing, or if the tool was neither shown nor hidden.
        """
        if self.preloaded:
            return tool in self.preloaded or (False if tool in self.shown else None)
        if not self.hidden or self.preloaded is not None:
            return None
        if tool in self.shown:
            return True
        if tool not in self.hidden:
            return None
        return found is DiscoveryMethod.LISTED and self.mode != "shadow"

    def to_exposure(self, session_id: UUID, timestamp: float) -> Exposure:
        """Return the record that a session was shown this, at a time in seconds since the epoch."""
        deferred = () if self.preloaded is None else set(self.shown).difference(self.preloaded)
        return Exposure(
            id=uuid7(),
            session_id=session_id,
            timestamp=timestamp,
            shown=self.in_prompt,
            hidden=(*self.hidden, *sorted(deferred)),
            predictor=self.predictor,
            reason=self.reason,
            mode=self.mode,
            surface=self.surface,
            tokens_shown=self.tokens_shown,
            tokens_hidden=self.tokens_hidden,
            tokens_own=self.tokens_own,
        )


NO_LIST: Final = ListSelection()
"""What a session has before its first list."""
