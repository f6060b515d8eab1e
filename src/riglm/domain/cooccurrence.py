"""Co-occurrence: which tools are used in the same sessions, and how near to each other."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCooccurrence:
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
