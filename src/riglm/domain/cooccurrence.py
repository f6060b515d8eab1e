"""Co-occurrence: which tools are used in the same sessions, and how near to each other."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

MAX_TOOLS_PER_SESSION: Final = 256
"""Maximum number of distinct tools of a session that form pairs, so that one odd session cannot fill the memory."""

MAX_TOOL_LENGTH: Final = 256
"""Tools with more characters in their names form no pairs: databases index no text of any length."""

MAX_COOCCURRENCE_SESSIONS: Final = 50_000
"""Maximum number of sessions that count, the latest ones: old use says little, and all would take too long."""

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooccurrence:
    """Two tools that were used in one session.

    The pair is unordered: `tool_a` sorts before `tool_b`. `count` is the number of sessions that used both,
    `average_distance` the mean over these sessions of the least difference between their sequence numbers;
    `last_updated` is in seconds since the epoch.
    """

    tool_a: str
    tool_b: str
    count: int
    average_distance: float
    last_updated: float


def least_distances(calls: Iterable[tuple[str, int]]) -> dict[Pair, int]:
    """The least difference between the sequence numbers of each two tools of one session.

    `calls` are pairs of tool and sequence number in ascending order of the latter.
    """
    last: dict[str, int] = {}  # in the order of last use
    before: dict[str, dict[str, int]] = {}  # how far before a tool the others were used, at the least
    for tool, number in calls:
        previous = last.pop(tool, None)
        if previous is None:
            if len(last) == MAX_TOOLS_PER_SESSION:
                continue
            before[tool] = {other: number - used for other, used in last.items()}
        else:
            nearest = before[tool]
            for other, used in reversed(last.items()):
                if used < previous:  # and all that follow are older: the tool's previous use was nearer to them
                    break
                known = nearest.get(other)
                if known is None or number - used < known:
                    nearest[other] = number - used
        last[tool] = number
    least: dict[Pair, int] = {}
    for tool, others in before.items():
        for other, distance in others.items():
            pair = (tool, other) if tool < other else (other, tool)
            least[pair] = min(distance, least.get(pair, distance))
    return least


class CooccurrenceCounter:
    """Adds up sessions, one at a time."""

    def __init__(self) -> None:
        self._sums: dict[Pair, tuple[int, int]] = {}

    def add_session(self, calls: Iterable[tuple[str, int]]) -> None:
        """Count one session's calls: pairs of tool and sequence number in ascending order of the latter."""
        sums = self._sums
        named = ((tool, number) for tool, number in calls if len(tool) <= MAX_TOOL_LENGTH)
        for pair, distance in least_distances(named).items():
            sessions, total = sums.get(pair, (0, 0))
            sums[pair] = (sessions + 1, total + distance)

    def __len__(self) -> int:
        return len(self._sums)

    def pairs(self, now: float) -> Iterator[Cooccurrence]:
        """Every pair counted so far, in no particular order; `now` is in seconds since the epoch."""
        for (tool_a, tool_b), (sessions, total) in self._sums.items():
            yield Cooccurrence(
                tool_a=tool_a, tool_b=tool_b, count=sessions, average_distance=total / sessions, last_updated=now
            )
