"""The queue between the call path and the recorder's threads: bounded, and every record accounted for."""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from riglm.ports.analytics import Record


class DeferredRecord(Protocol):
    """What becomes a record later, on the recorder's thread, so that the call path need not make it."""

    def record(self) -> Record:
        """The record; called once."""
        ...


QueueItem = Record | DeferredRecord

_BREATH_SECONDS: Final = 0.02  # an answer that was just given is on its way out


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """How much may wait. A batch is closed by its number of records or by the age of its oldest, in seconds.

    Past the share `high_water` of either limit, records must go elsewhere than to the store.
    """

    records: int = 10_000
    size_bytes: int = 32 << 20
    batch_records: int = 500
    batch_seconds: float = 0.05
    high_water: float = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCounts:
    """What became of all records so far: accepted = stored + queued + spooled + dropped, always.

    `queued` includes what is being stored. `recovered` is the number of accepted records that came from the spools of
    ended processes. `reasons` is the number of dropped ones by reason: `full`, when the queue and the spool
    were; `refused` by the store; `damaged` in the spool; or `closed`, at the end. `spool_bytes` is what the spool takes
    on disk.
    """

    accepted: int
    stored: int
    queued: int
    spooled: int
    dropped: int
    recovered: int
    reasons: Mapping[str, int]
    spool_bytes: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class Batch:
    """Records on their way from the queue, or from the spool, to the store.

    `left` is the number of those of which it is not settled what became of them; `done` counts the settled ones at the
    beginning of `records`. At most `at_once` are stored in one transaction: less than all while the store refuses one
    of them. A batch that was `is_revoked` from the thread that stores it is settled elsewhere; one that `is_held_back`
    holds nothing but what must not pass the spool. At the end of one that `is_awaited` something else may be due.
    """

    items: list[QueueItem] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    left: int
    done: int = 0
    at_once: int = sys.maxsize
    size_bytes: int = 0
    from_spool: bool = False
    is_revoked: bool = False
    is_held_back: bool = False
    is_awaited: bool = False

    @property
    def rest(self) -> list[Record]:
        """The records that are not settled."""
        return self.records[self.done :]


class RecordQueue:
    """Takes records from any thread, hands them out in batches, and counts what becomes of each.

    `changed` is notified when there may be something to do; its holder may call `is_closed`, `is_abandoned`,
    `is_empty`, `is_idle`, `is_pressed`, `is_behind`, `due_in` and `next_look_in`, and call nothing else.

    Who takes a batch looks for the next one after `batch_seconds`, so that no record of a steady flow has to wake it.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._limits: Final = limits
        self._high_records = min(limits.records - 1, int(limits.records * limits.high_water))
        self._high_bytes = int(limits.size_bytes * limits.high_water)
        self._lock = threading.Lock()
        self.changed: Final = threading.Condition(self._lock)
        self._items: deque[tuple[QueueItem, int]] = deque()
        self._bytes = 0
        self._in_hand = 0
        self._accepted = 0
        self._stored = 0
        self._spooled = 0
        self._recovered = 0
        self._acknowledged = 0
        self._dropped = {"full": 0, "refused": 0, "damaged": 0, "closed": 0}
        self._since = 0.0
        self._next_look: float | None = None
        self._begun = False
        self._hurried = False
        self._closed = False
        self._abandoned = False

    def put(self, item: QueueItem, size: int) -> None:
        """Queue a record of about `size` bytes; when the queue is full or closed, drop and count it."""
        with self._lock:  # the plain lock is entered faster than the condition around it
            self._accepted += 1
            waiting = len(self._items)
            if self._closed:
                self._dropped["closed"] += 1
            elif waiting + self._in_hand >= self._limits.records or self._bytes + size > self._limits.size_bytes:
                self._dropped["full"] += 1
            else:
                self._items.append((item, size))
                self._bytes += size
                if waiting == 0:
                    self._since = time.monotonic()
                is_first = waiting == 0 and self._next_look is None
                if is_first or waiting + 1 == self._limits.batch_records or self._is_crossing(waiting, size):
                    self.changed.notify_all()

    def take(self) -> Batch:
        """The oldest records that wait, at most as many as a batch has."""
        with self._lock:
            count = min(len(self._items), self._limits.batch_records)
            taken = [self._items.popleft() for _ in range(count)]
            self._in_hand += count
            self._since = time.monotonic()
            self._next_look = self._since + self._limits.batch_seconds
            items = [item for item, _ in taken]
            return Batch(items=items, left=count, size_bytes=sum(size for _, size in taken))

    def split(self, batch: Batch, aside: Callable[[Record], bool]) -> Batch:
        """Move the records for which `aside` is True out of an unused batch, into a separate one."""
        with self._lock:
            rest = batch.rest
            put = [record for record in rest if aside(record)]
            batch.records, batch.done = [record for record in rest if not aside(record)], 0
            batch.left -= len(put)
            return Batch(records=put, left=len(put))

    def settle(self, batch: Batch, *, stored: int = 0, refused: int = 0) -> bool:
        """Count the next records of a batch as stored or refused; False if it was taken from this thread."""
        with self._lock:
            if not batch.is_revoked:
                self._stored += stored
                self._dropped["refused"] += refused
                self._leave(batch, stored + refused)
                batch.done += stored + refused
            return not batch.is_revoked

    def not_made(self, batch: Batch) -> None:
        """Count an item of a batch that could not be made a record."""
        with self._lock:
            self._dropped["refused"] += 1
            self._leave(batch, 1)

    def revoke(self, batch: Batch) -> Batch:
        """Take the unsettled records from the thread that stores a batch; its result there does not count any more."""
        with self._lock:
            batch.is_revoked = True
            return Batch(records=batch.rest, left=batch.left, size_bytes=batch.size_bytes)

    def spooled(self, batch: Batch, *, refused: int = 0) -> None:
        """Count a batch as kept on disk, but for those that the spool refused."""
        with self._lock:
            count = batch.left
            self._dropped["refused"] += refused
            self._spooled += count - refused
            self._leave(batch, count)
            batch.done += count

    def recover(self, count: int) -> None:
        """Count records that were found in the spool of an ended process."""
        with self._lock:
            self._accepted += count
            self._recovered += count
            self._spooled += count

    def damaged(self, count: int) -> None:
        """Count records of the spool that could not be read."""
        with self._lock:
            self._spooled -= count
            self._dropped["damaged"] += count

    def lose(self, batch: Batch) -> None:
        """Count what is left of a batch as dropped at the end."""
        with self._lock:
            count = batch.left
            self._dropped["closed"] += count
            self._leave(batch, count)
            batch.done += count

    def rest(self, seconds: float) -> None:
        """Wait `seconds`, or until a caller waits for the queue to empty, or shortly after `begin`."""
        with self.changed:
            self.changed.wait_for(lambda: self._begun or self._hurried or self._closed, seconds)
            if self._begun:
                self.changed.wait_for(lambda: self._hurried or self._closed, _BREATH_SECONDS)
                self._hurried = bool(self._items)

    def begin(self) -> None:
        """End the rest soon: what the recorder was to leave the way to has happened."""
        with self.changed:
            self._begun = True
            self.changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait until all that is queued now is stored, on disk or refused, at most `timeout` seconds; whether it is."""
        with self.changed:
            goal = self._acknowledged + self._in_hand + len(self._items)
            self._hurried = True
            self.changed.notify_all()
            return self.changed.wait_for(lambda: self._acknowledged >= goal, timeout)

    def close(self) -> None:
        """Take nothing more; what is queued is still handed out, at once."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()

    def abandon(self) -> None:
        """Let it be known that the store is not to be waited for any longer; the queue is closed already."""
        with self.changed:
            self._abandoned = True
            self.changed.notify_all()

    def empty(self) -> None:
        """Drop what was not taken."""
        with self._lock:
            self._dropped["closed"] += len(self._items)
            self._acknowledged += len(self._items)
            self._bytes -= sum(size for _, size in self._items)
            self._items.clear()
            self.changed.notify_all()

    def counts(self) -> RecordCounts:
        """What became of all records, at one instant."""
        with self._lock:
            return RecordCounts(
                accepted=self._accepted,
                stored=self._stored,
                queued=len(self._items) + self._in_hand,
                spooled=self._spooled,
                dropped=sum(self._dropped.values()),
                recovered=self._recovered,
                reasons=dict(self._dropped),
            )

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is taken."""
        return self._closed

    @property
    def is_abandoned(self) -> bool:
        """Whether the store is not to be waited for any longer."""
        return self._abandoned

    @property
    def overflowed(self) -> int:
        """The number of records that were dropped because the queue was full."""
        return self._dropped["full"]

    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._items

    def is_idle(self) -> bool:
        """Whether nothing waits or is being stored, and no thread waits for that."""
        return not (self._items or self._in_hand or self._hurried or self._closed)

    def is_pressed(self) -> bool:
        """True if more is waiting or being stored than the high-water mark allows."""
        return bool(self._items) and (
            len(self._items) + self._in_hand > self._high_records or self._bytes > self._high_bytes
        )

    def is_behind(self) -> bool:
        """Whether more batches than one wait."""
        return len(self._items) >= 2 * self._limits.batch_records

    def due_in(self) -> float | None:
        """In how many seconds there is a batch, zero if there is one, None if nothing waits.

        The age of the oldest record is counted from the last batch if it was there already.
        """
        if not self._items:
            return None
        if len(self._items) >= self._limits.batch_records or self._hurried or self._closed:
            return 0.0
        return max(0.0, self._since + self._limits.batch_seconds - time.monotonic())

    def next_look_in(self) -> float | None:
        """In how many seconds to look whether records came, None if the first one notifies `changed`."""
        if self._items or self._next_look is None:
            return None
        left = self._next_look - time.monotonic()
        if left <= 0.0:
            self._next_look = None
            return None
        return left

    def _is_crossing(self, waiting: int, size: int) -> bool:
        return waiting + self._in_hand == self._high_records or self._bytes - size <= self._high_bytes < self._bytes

    def _leave(self, batch: Batch, count: int) -> None:
        """Count records of a batch as removed from the queue, or from the spool."""
        batch.left -= count
        if batch.from_spool:
            self._spooled -= count
        else:
            self._in_hand -= count
            self._acknowledged += count
            if not batch.left:
                self._bytes -= batch.size_bytes
            is_awaited = self._hurried
            if not self._in_hand:
                self._hurried = self._hurried and bool(self._items)
            if is_awaited:
                self.changed.notify_all()
