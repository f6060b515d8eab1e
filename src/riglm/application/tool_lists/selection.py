"""The tools that one client gets: in a list, or in the result of a meta-tool."""

from dataclasses import dataclass, field, fields
from typing import Final
from uuid import UUID

from riglm.domain.exposure import Exposure, ShownTools
from riglm.domain.session import uuid7


@dataclass(frozen=True, slots=True)
class ListSelection(ShownTools):
    """The tools that a client gets and those that are hidden from it, in the catalog's order.

    `raw` is a JSON array of the entries of a list; with `is_passthrough` they are those of the upstream's response,
    unchanged. Denied tools are neither shown nor hidden. `meta_tools` are those that the session can call. Tokens are
    estimates, as in an exposure. Selections that differ in bytes, tokens or meta-tools only are equal.
    """

    raw: bytes = field(default=b"", compare=False)
    is_passthrough: bool = field(default=False, compare=False)
    meta_tools: tuple[str, ...] = field(default=(), compare=False)
    tokens_shown: int = field(default=0, compare=False)
    tokens_hidden: int = field(default=0, compare=False)
    tokens_own: int = field(default=0, compare=False)

    def to_exposure(self, session_id: UUID, timestamp: float) -> Exposure:
        """Return the record that a session was shown this, at a time in seconds since the epoch."""
        return Exposure(
            **{each.name: getattr(self, each.name) for each in fields(ShownTools)},
            id=uuid7(),
            session_id=session_id,
            timestamp=timestamp,
            tokens_shown=self.tokens_shown,
            tokens_hidden=self.tokens_hidden,
            tokens_own=self.tokens_own,
        )


NO_LIST: Final = ListSelection()
"""What a session has before its first list."""
