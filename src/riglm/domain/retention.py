"""How long records are kept, and what was removed."""

from dataclasses import asdict, astuple, dataclass
from enum import StrEnum
from typing import Final, Self

DAY_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """What is too old to be kept at the time `now`: all that happened before the times given; None keeps all.

    Times are in seconds since the epoch. A learned pair counts by the last use that taught it. A session goes when it
    ended before its time and nothing that happened in it is kept any more; one that has not ended stays. What has
    expired by itself, such as an override, goes as well.
    """

    now: float
    sessions: float | None = None
    invocations: float | None = None
    exposures: float | None = None
    learned_pairs: float | None = None

    @classmethod
    def of_all(cls, before: float, now: float) -> Self:
        """One time for everything."""
        return cls(now=now, sessions=before, invocations=before, exposures=before, learned_pairs=before)

    @property
    def lists(self) -> float | None:
        """The time before which no list of tools is referred to, by a session that has ended or by an exposure."""
        if self.sessions is None or self.exposures is None:
            return None
        return min(self.sessions, self.exposures)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedCounts:
    """How many records of each kind were removed.

    `lists` are lists of tools that nothing refers to any more, `token_usages` the token counts of sessions.
    """

    sessions: int = 0
    invocations: int = 0
    exposures: int = 0
    learned_pairs: int = 0
    overrides: int = 0
    warm_sets: int = 0
    lists: int = 0
    token_usages: int = 0

    def __add__(self, other: "RemovedCounts") -> "RemovedCounts":
        sums = {name: count + getattr(other, name) for name, count in asdict(self).items()}
        return RemovedCounts(**sums)

    def __str__(self) -> str:
        counts = {name.replace("_", " "): count for name, count in asdict(self).items() if count}
        told = (f"{count} {word if count > 1 else word[:-1]}" for word, count in counts.items())
        return ", ".join(told) or "nothing"

    @property
    def total(self) -> int:
        """All of them."""
        return sum(astuple(self))


class ErasureScope(StrEnum):
    """What distinguishes the records to erase from all others."""

    SESSION = "session"
    CLIENT = "client"
    PRINCIPAL = "principal"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRequest:
    """A subject to erase, at a time in seconds since the epoch.

    `key` is the id of a session; the keyed hash of a client, or of the name that clients gave themselves; or the keyed
    hash of a principal, empty for callers without a name. A client and a principal may come back: their sessions that
    start later are recorded. A session that was forgotten stays so.
    """

    whose: ErasureScope
    key: str
    at: float
