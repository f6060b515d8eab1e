"""One number that was measured, and the most that it may be."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What was measured; `limit` is the most that is right, None where the number is only to be known."""

    what: str
    value: float
    unit: str = ""
    limit: float | None = None
    note: str = ""

    @property
    def is_right(self) -> bool:
        """Whether it is within the limit."""
        return self.limit is None or self.value <= self.limit
