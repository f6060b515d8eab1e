"""An exposure: one list of tools that was shown."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """What one `tools/list` showed and hid, by whose choice, and why.

    `shown` is in the order shown; `hidden` has no order of its own and is kept sorted. `timestamp` is in seconds since
    the epoch; `predictor` is empty when nothing was predicted.
    """

    id: UUID
    session_id: UUID
    timestamp: float
    shown: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    predictor: str = ""
    reason: str = ""

    @property
    def available(self) -> tuple[str, ...]:
        """All tools, shown or hidden: as shown when none is hidden, else sorted."""
        return available_tools(self.shown, self.hidden)


def available_tools(shown: tuple[str, ...], hidden: tuple[str, ...]) -> tuple[str, ...]:
    """All tools: as shown when none is hidden, else sorted, so that the same tools make the same list."""
    return tuple(sorted({*shown, *hidden})) if hidden else shown
