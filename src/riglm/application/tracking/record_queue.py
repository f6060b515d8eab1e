"""The queue between the call path and the recorder's threads: bounded, and every record accounted for."""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from riglm.ports.analytics import Record
from riglm.ports.telemetry import RecordCounts

QueueItem = Record | Callable[[], Record]
"""A record, or what makes it later, once, on the recorder's thread, so that the call path need not make it."""

_DROPPED: Final = ("full", "refused", "damaged", "closed")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """How much may wait. A batch is closed by its number of records or by its age, in seconds.

    Past the share `high_water` of either limit, records go to the spool although the store works.
    """

    records: int = 10_000
    size_bytes: int = 32 << 20
    batch_records: int = 500
    batch_seconds: float = 0.05
    high_water: float = 0.75


@dataclass(slots=True, eq=False, kw_only=True)
class Batch:
    """Records on their way from the queue, or from the spool, to the store.

    `done` counts the settled ones at the beginning of `records`. At most `at_once` are stored in one transaction: less
    than all while the store refuses one of them. A batch that was revoked is settled elsewhere.
    """

    records: list[Record] = field(default_factory=list)
    from_spool: bool = False
    is_revoked: bool = False
    done: int = 0
    at_once: int = sys.maxsize

    @property
    def rest(self) -> list[Record]:
        """The records that are not settled."""
        return self.records[self.done :]


class RecordQueue:
    """Takes records from any thread, hands them out in batches, and counts what becomes of each.

    The recorder is woken by the first record after a pause, a full batch, a queue above its high-water mark, a flush
    and the end. Between two batches of a steady flow it looks again by itself.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._limits: Final = limits
        self._high_records = min(limits.records - 1, int(limits.records * limits.high_water))
        self._high_bytes = int(limits.size_bytes * limits.high_water)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self.signals = 0
        """A number that changes with every reason to look again."""
        self._items: deque[tuple[QueueItem, int]] = deque()
        self._bytes = 0
        self._in_hand = 0
        self._accepted = self._recovered = self._acknowledged = 0
        self._outcomes = {"stored": 0, "spooled": 0, **dict.fromkeys(_DROPPED, 0)}
        self._due_at: float | None = None
        self._flushes = 0
        self._begun = False
        self.is_closed = False
        """True if nothing more is taken."""
        self.is_abandoned = False
        """True if the store is not to be waited for any longer."""

    def put(self, item: QueueItem, size: int) -> None:
        """Queue a record of about `size` bytes; when the queue is full or closed, drop and count it."""
        with self._lock:  # the plain lock is entered faster than the condition around it
            self._accepted += 1
            if self.is_closed:
                self._outcomes["closed"] += 1
            elif (
                len(self._items) + self._in_hand >= self._limits.records or self._bytes + size > self._limits.size_bytes
            ):
                self._outcomes["full"] += 1
            else:
                self._items.append((item, size))
                self._bytes += size
                is_first = self._due_at is None
                if self._due_at is None:
                    self._due_at = time.monotonic() + self._limits.batch_seconds
                if is_first or len(self._items) == self._limits.batch_records or self.is_pressed():
                    self._notify()

    def take(self) -> list[QueueItem]:
        """Return the oldest items, at most as many as a batch has."""
        with self._changed:
            taken = [self._items.popleft() for _ in range(min(len(self._items), self._limits.batch_records))]
            self._in_hand += len(taken)
            self._due_at = time.monotonic() + self._limits.batch_seconds
            self._bytes -= sum(size for _, size in taken)
            return [item for item, _ in taken]

    def settle(self, batch: Batch, count: int, outcome: Literal["stored", "spooled", "refused", "closed"]) -> bool:
        """Count the next records of a batch as stored, spooled or dropped; False if the batch was revoked."""
        with self._changed:
            if batch.is_revoked:
                return False
            batch.done += count
            self._outcomes[outcome] += count
            if batch.from_spool:
                self._outcomes["spooled"] -= count
            else:
                self._release(count)
            return True

    def drop_unmade(self) -> None:
        """Count an item that was taken and could not be made a record."""
        with self._changed:
            self._outcomes["refused"] += 1
            self._release(1)

    def revoke(self, batch: Batch) -> Batch:
        """Take the unsettled records from the thread that stores a batch; its result there does not count any more."""
        with self._changed:
            batch.is_revoked = True
            return Batch(records=batch.rest)

    def recover(self, count: int) -> None:
        """Count records that were found in the spool of an ended process."""
        with self._changed:
            self._accepted += count
            self._recovered += count
            self._outcomes["spooled"] += count

    def drop_damaged(self, count: int) -> None:
        """Count records of the spool that could not be read."""
        with self._changed:
            self._outcomes["spooled"] -= count
            self._outcomes["damaged"] += count

    def wait_for_start(self, seconds: float, breath: float) -> None:
        """Wait `seconds`, or until `breath` seconds after `begin`, or until a flush or the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._begun or self._is_urgent(), seconds)
            if self._begun:
                self._changed.wait_for(self._is_urgent, breath)

    def begin(self) -> None:
        """End `wait_for_start` soon."""
        with self._changed:
            self._begun = True
            self._notify()

    def flush(self, timeout: float) -> bool:
        """Wait until all that is queued now is stored, on disk or refused, at most `timeout` seconds; whether it is."""
        with self._changed:
            goal = self._acknowledged + self._in_hand + len(self._items)
            self._flushes += 1
            self._notify()
            try:
                return self._changed.wait_for(lambda: self._acknowledged >= goal, timeout)
            finally:
                self._flushes -= 1

    def close(self) -> None:
        """Take nothing more; what is queued is still handed out, at once."""
        with self._changed:
            self.is_closed = True
            self._notify()

    def abandon(self) -> None:
        """Have the recorder wait for the store no longer; the queue is closed already."""
        with self._changed:
            self.is_abandoned = True
            self._notify()

    def drop_rest(self) -> None:
        """Drop what was not taken."""
        with self._changed:
            self._outcomes["closed"] += len(self._items)
            self._acknowledged += len(self._items)
            self._items.clear()
            self._notify()

    def wait(self, signals: int, timeout: float | None) -> None:
        """Wait until there is a reason to look again since `signals`, at most `timeout` seconds."""
        with self._changed:
            if self.signals == signals:
                self._changed.wait(timeout)

    def notify_stored(self, *, is_awaited: bool) -> None:
        """Wake the recorder after a batch if it waits for that; otherwise it looks again by itself."""
        with self._changed:
            if is_awaited or self._items or self._in_hand or self._is_urgent():
                self._notify()

    def counts(self) -> RecordCounts:
        """Return what became of all records, at one instant."""
        with self._changed:
            reasons = {reason: self._outcomes[reason] for reason in _DROPPED}
            return RecordCounts(
                accepted=self._accepted,
                stored=self._outcomes["stored"],
                queued=len(self._items) + self._in_hand,
                spooled=self._outcomes["spooled"],
                dropped=sum(reasons.values()),
                recovered=self._recovered,
                reasons=reasons,
            )

    @property
    def is_empty(self) -> bool:
        """True if nothing waits."""
        return not self._items

    def is_pressed(self) -> bool:
        """Return True if more is waiting or being stored than the high-water mark allows."""
        return bool(self._items) and (
            len(self._items) + self._in_hand > self._high_records or self._bytes > self._high_bytes
        )

    def due_in(self) -> float | None:
        """Return in how many seconds to look for a batch, 0 if there is one; None if the first record notifies."""
        with self._changed:
            if self._items and (self._is_urgent() or len(self._items) >= self._limits.batch_records):
                return 0.0
            left = None if self._due_at is None else self._due_at - time.monotonic()
            if left is not None and left <= 0.0 and not self._items:
                left = self._due_at = None
            return None if left is None else max(0.0, left)

    def _is_urgent(self) -> bool:
        return self._flushes > 0 or self.is_closed

    def _notify(self) -> None:
        self.signals += 1
        self._changed.notify_all()

    def _release(self, count: int) -> None:
        """Count records that were taken as settled."""
        self._in_hand -= count
        self._acknowledged += count
        if self._flushes:
            self._notify()
