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
    unchanged. Denied tools are neither shown nor hidden. `meta_tools` are those that the session can call. Selections
    that differ in bytes of the same number of tokens or in meta-tools only are equal.
    """

    raw: bytes = field(default=b"", compare=False)
    is_passthrough: bool = field(default=False, compare=False)
    meta_tools: tuple[str, ...] = field(default=(), compare=False)

    def to_exposure(self, session_id: UUID, timestamp: float) -> Exposure:
        """Return the record that a session was shown this, at a time in seconds since the epoch."""
        shown = {each.name: getattr(self, each.name) for each in fields(ShownTools)}
        return Exposure(**shown, id=uuid7(), session_id=session_id, timestamp=timestamp)


NO_LIST: Final = ListSelection()
"""What a session has before its first list."""
