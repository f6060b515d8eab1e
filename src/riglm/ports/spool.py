"""Where records wait on disk while the store is unavailable."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from riglm.domain.errors import RiglmError
from riglm.ports.analytics import Record


class SpoolUnavailableError(RiglmError):
    """Raised when the spool takes no records now: it has reached its maximum size, or its disk fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledRecords:
    """The next records of a spool, oldest first.

    `is_own` is True if this process wrote them. `damaged` is the number of records that are lost, `skipped` the number
    of this process's records that cannot be read now and are left to the next start.
    """

    records: list[Record]
    is_own: bool
    damaged: int = 0
    skipped: int = 0


@runtime_checkable
class SpoolPort(Protocol):
    """Keeps records on disk, in order, until they are removed. It is used by one thread.

    What was appended survives the end of this process, and after `sync` a loss of power. The records of an ended
    process are adopted by the next one that starts. Constructing a spool opens nothing.
    """

    def __enter__(self) -> Self:
        """Adopt the records of ended processes."""

    def __exit__(self, *_: object) -> None:
        """Sync, and leave to the next process what was not removed."""

    def append(self, records: Sequence[Record]) -> int:
        """Append all records but those that cannot be encoded, and return the number of those.

        Raises:
            SpoolUnavailableError: no record was appended.
        """

    def hurry(self) -> None:
        """Do not wait for the disk in any later `append`: the process ends soon, and what is not appended is lost."""

    def sync(self) -> None:
        """Make what was appended survive a loss of power.

        Raises:
            SpoolUnavailableError: it may not survive one.
        """

    def read(self, limit: int) -> SpooledRecords | None:
        """Return the oldest records that were not removed, at most `limit`; None if there are none."""

    def remove(self) -> None:
        """Remove the records that `read` returned last."""

    @property
    def is_empty(self) -> bool:
        """True if nothing is left to read."""

    @property
    def size_bytes(self) -> int:
        """The space that its records take on disk."""
