"""How far a session has come: what it is about, what it used, what it was shown."""

from dataclasses import dataclass, field
from typing import Final

from riglm.domain.prediction import Context

MOST_CALLS: Final = 200
"""The latest calls of a session that are remembered for prediction."""


@dataclass(slots=True, kw_only=True, eq=False)
class SessionState:
    """What prediction and filtering remember of one session while it lasts.

    `turn` counts from 0; `used_in_turn` gives the last turn in which each tool was used, `turn_key` the last key that
    began a turn. `shown` are the names of the last list in its order, None before the first. `searched` were found by
    search. `last_at` is the time of the last call or context, in seconds since the epoch.
    """

    calls: list[str] = field(default_factory=list)
    context: Context | None = None
    turn: int = 0
    turn_key: str = ""
    used_in_turn: dict[str, int] = field(default_factory=dict)
    shown: tuple[str, ...] | None = None
    searched: set[str] = field(default_factory=set)
    last_at: float = 0.0

    def called(self, tool: str, at: float) -> None:
        """Note a call."""
        self.calls.append(tool)
        del self.calls[:-MOST_CALLS]
        self.used_in_turn[tool] = self.turn
        self.last_at = at
