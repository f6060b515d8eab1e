"""What was measured, and what it should be."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A number; `most` and `least` are its limits, None where it is only to be known."""

    what: str
    value: float
    unit: str = ""
    most: float | None = None
    least: float | None = None

    @property
    def is_right(self) -> bool:
        """Whether it is within its limits."""
        return (self.most is None or self.value <= self.most) and (self.least is None or self.value >= self.least)

    @property
    def limit(self) -> str:
        """The limits in words."""
        words = [f"at most {self.most:g}"] if self.most is not None else []
        return ", ".join(words + ([f"at least {self.least:g}"] if self.least is not None else []))


class CannotRun(Exception):
    """A measurement needs what is not there; the message says what."""
