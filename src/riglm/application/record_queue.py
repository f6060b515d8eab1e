"""The queue between the call path and the writer: bounded, and every record accounted for."""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from riglm.ports.analytics import Record


class Pending(Protocol):
    """What becomes a record later, on the writer's thread, so that the call path need not make it."""

    def record(self) -> Record:
        """The record; called once."""
        ...


Item = Record | Pending

_PAUSE_WHEN_CLOSED: Final = 0.1
_BREATH_SECONDS: Final = 0.02  # an answer that was just given is on its way out


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """How much may wait. A batch is closed by its number of records or by the age of its oldest, in seconds."""

    records: int = 10_000
    size_bytes: int = 32 << 20
    batch_records: int = 500
    batch_seconds: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCounts:
    """What became of all records so far: accepted = stored + queued + dropped, always.

    `queued` includes the batch that is being stored. `reasons` says for which reason how many were dropped: `full`,
    `refused` by the store, or `closed`.
    """

    accepted: int
    stored: int
    queued: int
    dropped: int
    reasons: Mapping[str, int]


class RecordQueue:
    """Takes records from any thread and hands them to one writer in batches."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits: Final = limits
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._items: deque[tuple[Item, int]] = deque()
        self._bytes = 0
        self._in_hand = 0
        self._bytes_in_hand = 0
        self._accepted = 0
        self._stored = 0
        self._dropped = {"full": 0, "refused": 0, "closed": 0}
        self._begun = False
        self._hurried = False
        self._closed = False
        self._abandoned = False

    def put(self, item: Item, size: int) -> None:
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
                if waiting == 0 or waiting + 1 == self._limits.batch_records:
                    self._changed.notify_all()

    def take(self) -> list[Item]:
        """The next batch, once there is one; empty when the queue is closed and nothing is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closed)
            self._changed.wait_for(self._batch_is_due, self._limits.batch_seconds)
            count = min(len(self._items), self._limits.batch_records)
            taken = [self._items.popleft() for _ in range(count)]
            self._in_hand = count
            self._bytes_in_hand = sum(size for _, size in taken)
            return [item for item, _ in taken]

    def settle(self, *, stored: int = 0, refused: int = 0) -> None:
        """Count records of the batch in hand as stored, or as refused by the store."""
        with self._changed:
            self._stored += stored
            self._dropped["refused"] += refused
            self._release(stored + refused)

    def give_up(self) -> None:
        """Count what is left of the batch in hand as dropped."""
        with self._changed:
            self._dropped["closed"] += self._in_hand
            self._release(self._in_hand)

    def rest(self, seconds: float) -> None:
        """Wait `seconds`, or until somebody waits for the queue to empty, or shortly after it was let begin."""
        with self._changed:
            self._changed.wait_for(lambda: self._begun or self._hurried or self._closed, seconds)
            if self._begun:
                self._changed.wait_for(lambda: self._hurried or self._closed, _BREATH_SECONDS)
                self._hurried = bool(self._items)

    def begin(self) -> None:
        """End the rest soon: what the writer was to leave the way to has happened."""
        with self._changed:
            self._begun = True
            self._changed.notify_all()

    def pause(self, seconds: float) -> bool:
        """Wait before the store is tried again, at most `seconds`; False when it is not worth trying any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)
            if self._closed:
                self._changed.wait_for(lambda: self._abandoned, min(seconds, _PAUSE_WHEN_CLOSED))
            return not self._abandoned

    def flush(self, timeout: float) -> bool:
        """Wait until all that is queued now was stored or refused, at most `timeout` seconds; whether it was."""
        with self._changed:
            goal = self._settled() + self._in_hand + len(self._items)
            self._hurried = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._settled() >= goal, timeout)

    def close(self) -> None:
        """Take nothing more; the writer still gets what is queued, at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Drop what the writer did not take, and let it try no more; the queue is closed already."""
        with self._changed:
            self._abandoned = True
            self._dropped["closed"] += len(self._items)
            self._bytes -= sum(size for _, size in self._items)
            self._items.clear()
            self._changed.notify_all()

    def counts(self) -> RecordCounts:
        """What became of all records, at one instant."""
        with self._changed:
            return RecordCounts(
                accepted=self._accepted,
                stored=self._stored,
                queued=len(self._items) + self._in_hand,
                dropped=sum(self._dropped.values()),
                reasons=dict(self._dropped),
            )

    def _batch_is_due(self) -> bool:
        return len(self._items) >= self._limits.batch_records or self._hurried or self._closed

    def _settled(self) -> int:
        return self._stored + self._dropped["refused"] + self._dropped["closed"]

    def _release(self, count: int) -> None:
        self._in_hand -= count
        if not self._in_hand:
            self._bytes -= self._bytes_in_hand
            self._bytes_in_hand = 0
            self._hurried = self._hurried and bool(self._items)
        self._changed.notify_all()
