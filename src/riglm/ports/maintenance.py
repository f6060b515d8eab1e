"""Maintenance of a store: purge, erase, export, compact."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol, runtime_checkable

from riglm.domain.retention import ErasureRequest, Expiry, RemovedCounts

ROW_BATCH_SIZE: Final = 250
"""Rows that are removed in one step: writers wait for the end of a step, and it ends within a few milliseconds."""

ExportRow = Mapping[str, Any]
"""A record as plain values: text, numbers, truth values, lists and objects of them, and None."""


class RecordKind(StrEnum):
    """The kinds of records that can be exported, each in a separate table."""

    SESSIONS = "sessions"
    INVOCATIONS = "invocations"
    EXPOSURES = "exposures"
    COOCCURRENCES = "cooccurrences"
    LEARNED_PAIRS = "learned_pairs"
    OVERRIDES = "overrides"
    WARM_SETS = "warm_sets"


@runtime_checkable
class ExportPort(Protocol):
    """Hands out all that is stored."""

    @abstractmethod
    def count_rows(self, kind: RecordKind, since: float = 0.0) -> int:
        """How many records of this kind there are from the given time on."""

    @abstractmethod
    def export(self, kind: RecordKind, since: float = 0.0, at_once: int = 1000) -> Iterator[Sequence[ExportRow]]:
        """All records of this kind from the given time on, oldest first, at most `at_once` together.

        Ids are text, times are seconds since the epoch, hashes are as they are stored. Nothing is held between two
        parts: what is recorded meanwhile may be among them or not, and nothing comes twice.
        """


@runtime_checkable
class MaintenancePort(ExportPort, Protocol):
    """Purge, erase, export, compact. Methods block; a failure of the store arrives as `AnalyticsUnavailableError`."""

    @abstractmethod
    def get_reliable_time(self, now: float, since: float) -> float:
        """Return `now` if it is at most two days after the known time, else the known time: the two-days rule.

        The known time is the later of the noted time and the newest record that is at least a day older than `now`.
        Younger ones prove nothing: a clock that jumped may have stamped them. If no time was noted yet, it is the
        newest record before `since`, when this process started. Times after `now` do not count.

        So a clock that jumped ahead is reliable once it has shown two days, and until then age is measured at a time
        before the jump. With one short run a week, what was too old at the run before is removed.
        """

    @abstractmethod
    def note_time(self, at: float, now: float) -> None:
        """Note a time that was reliable at `now`, for `get_reliable_time` of this process and of later ones.

        A first or an earlier time is not noted if a record is more than a day later than `now`: the clock may be
        behind.
        """

    @abstractmethod
    def count_expired(self, expiry: Expiry) -> RemovedCounts:
        """How many records are too old; nothing is removed. Lists of tools are not counted."""

    @abstractmethod
    def purge(self, expiry: Expiry, at_once: int = ROW_BATCH_SIZE) -> Iterator[RemovedCounts]:
        """Remove what is too old, about `at_once` rows in each step.

        A step is one short transaction, done when its count is requested; the caller sets the pace. It may be given
        up after any step.
        """

    @abstractmethod
    def count_erasable(self, forgotten: ErasureRequest) -> RemovedCounts:
        """Return the number of records of a subject, for kinds that are stored by session; nothing is deleted."""

    @abstractmethod
    def erase(self, forgotten: ErasureRequest, at_once: int = ROW_BATCH_SIZE) -> Iterator[RemovedCounts]:
        """Erase a subject, in steps as in `purge`; the first one notes who was erased.

        From then on `record_many` drops their records, from any process and however late. Learned
        pairs go that only they taught, though the sessions may be purged in which they did, overrides made for them,
        and the warm sets of a principal. What is given up half-way is finished by `finish_erasures`.
        """

    @abstractmethod
    def finish_erasures(self, at_once: int = ROW_BATCH_SIZE) -> Iterator[RemovedCounts]:
        """Remove what is left of all who were forgotten, in steps as in `purge`; notes older than a year go too."""

    @abstractmethod
    def list_erased_sessions(self, since: float = 0.0) -> Sequence[ErasureRequest]:
        """The sessions that were to be forgotten at this time or later, in seconds since the epoch."""

    @abstractmethod
    def count_erasures(self, since: float = 0.0) -> float:
        """Return a number that grows with each erasure after `since`, in seconds since the epoch; 0 at first.

        The time that a clock ahead noted hides no later erasure.
        """

    @abstractmethod
    def size_bytes(self) -> int:
        """How much space the store takes."""

    @abstractmethod
    def compact(self, *, whole: bool = False, reserve: float = 0.0) -> Iterator[str]:
        """Give space back, in steps, each with what was done; no writer waits long for one.

        A share `reserve` of the store is left empty for new records. With `whole` the store is rewritten,
        and writers wait until that is done.
        """
