"""Where records wait on disk while the store is away."""

from abc import abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from riglm.domain.errors import RiglmError
from riglm.ports.analytics import Record


class SpoolUnavailable(RiglmError):
    """The spool takes no records now: it has reached its cap, or its disk fails."""


class SpoolSegment(Protocol):
    """A piece of a spool, read from its beginning to its end, and removed as a whole."""

    @property
    @abstractmethod
    def is_own(self) -> bool:
        """Whether this process wrote it, and not one that is gone."""

    @property
    @abstractmethod
    def unread(self) -> int:
        """How many records are still to come, as far as this process wrote them; else zero."""

    @abstractmethod
    def read(self, most: int) -> Sequence[Record]:
        """The next records in their order, at most so many; none at the end. Raises `SpoolUnavailable`."""

    @abstractmethod
    def damaged(self) -> int:
        """How many records could not be read since it was last asked."""


class SpoolPort(Protocol):
    """Keeps records on disk, in order, until they are removed. One thread uses it.

    What was appended outlives this process, and after `sync` the machine; what a process leaves is adopted by the next
    one that starts, by one alone. Constructing a spool makes and opens nothing.
    """

    @abstractmethod
    def __enter__(self) -> Self:
        """Adopt what processes left that are gone."""

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Sync, and leave to the next process what was not removed."""

    @abstractmethod
    def append(self, records: Sequence[Record]) -> int:
        """Keep records behind all others; how many of them it cannot write down, and did not keep.

        Raises `SpoolUnavailable`; then none was kept.
        """

    @abstractmethod
    def sync(self) -> None:
        """See to it that what was appended outlives a loss of power. Raises `SpoolUnavailable`."""

    @abstractmethod
    def oldest(self) -> SpoolSegment | None:
        """The segment to be stored next: what was adopted first, then this process's own."""

    @abstractmethod
    def remove(self, segment: SpoolSegment) -> None:
        """Remove the oldest segment; all that is in it was stored."""

    @abstractmethod
    def set_aside(self, segment: SpoolSegment) -> None:
        """Pass over the oldest segment, which cannot be read now, and leave it to the next process."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """What it takes on disk."""
