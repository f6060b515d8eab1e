"""The thread that hands records from the queue to the store, or to the spool when the store does not take them."""

import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from riglm.application.tracking.record_queue import Batch, RecordQueue
from riglm.application.tracking.spool_buffer import RecordWriter, SpoolBuffer
from riglm.application.tracking.throttling import RateLimitedLogger, rest_after
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ToolInvocation
from riglm.ports.analytics import Record

_log: Final = logging.getLogger("riglm.recorder")
_MIN_WAIT_SECONDS: Final = 0.005
_TURNS_WHEN_BEHIND: Final = 4  # by turns the queue would fill, and spill into the spool what then has to be replayed
_PAUSE_AT_THE_END: Final = 0.1
_PAUSE_AFTER_A_FAULT: Final = 0.5
_LAST_BATCH_SECONDS: Final = 0.5
_LAST_REPLAY_SECONDS: Final = 1.0  # or the spools of ended processes stay while all processes are short


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Seconds to wait for an unavailable store: twice as many each time, with jitter."""

    first: float = 1.0
    longest: float = 30.0

    def delay(self, failures: int) -> float:
        """Return the pause after this many failures in a row, at least one."""
        full = min(self.longest, self.first * 2.0 ** min(failures - 1, 32))
        return full * random.uniform(0.5, 1.0)  # noqa: S311  # jitter is no secret


class Dispatcher:
    """Does one thing after the other, and never waits for the store: `run` comes back when all is done at the end.

    A batch stays with a store that is slow, or still opens, for `timeout_seconds` seconds where there is a spool.

    At any time one batch may be with the writer (`given`), the next one prepared (`ready`), and some pending
    (`held`) that nothing else may pass: they go to the spool, or to the store when their turn has come.
    """

    def __init__(
        self,
        queue: RecordQueue,
        writer: RecordWriter,
        overflow: SpoolBuffer | None,
        rate_limited_log: RateLimitedLogger,
        backoff: Backoff,
        timeout_seconds: float,
        on_record: Callable[[Record], None] | None,
    ) -> None:
        self._queue = queue
        self._on_record = on_record
        self._writer = writer
        self._overflow = overflow
        self._rate_limited_log = rate_limited_log
        self._backoff = backoff
        self._timeout_seconds = timeout_seconds
        self._given: Batch | None = None
        self._ready: Batch | None = None
        self._held: deque[Batch] = deque()
        self._failures = 0
        self._is_slow = False
        self._is_ending = False
        self._retry_at = 0.0
        self._replay_at = 0.0
        self._replay_until = math.inf
        self._since_replay = 0
        self._lost = 0
        self._steps = (self._relieve, self._place, self._take, self._replay, self._prepare)

    @property
    def is_failing(self) -> bool:
        """True if the store was unavailable at the last attempt."""
        return self._failures > 0

    def open_store(self) -> None:
        """Have the store opened before there is anything to store."""
        self._give(Batch(left=0))

    def run(self) -> None:
        """Hand out what comes until the queue is closed and nothing is left to do, or not to be waited for."""
        while not self._is_over():
            try:
                self._do_next()
            except Exception:  # noqa: BLE001  # records still arrive, and must be handled
                self._rate_limited_log.warn("handing out records failed; it is tried again", traceback=True)
                with self._queue.changed:
                    self._queue.changed.wait_for(lambda: self._queue.is_abandoned, _PAUSE_AFTER_A_FAULT)
        self._finish()

    def _do_next(self) -> None:
        if self._overflow is not None:
            self._overflow.sync_if_due()
        if self._hasten() or (self._collect() and self._is_ending):
            return  # it may be over
        for step in self._steps:
            if step():
                return
        self._wait()

    def _is_over(self) -> bool:
        if self._queue.is_abandoned:
            return True
        if self._held or self._ready or not (self._queue.is_closed and self._queue.is_empty()):
            return False
        return (self._given is None or self._given.is_revoked) and not self._is_still_replaying()

    def _is_still_replaying(self) -> bool:
        """Whether the end waits for the store to take the spool: what came from this process, and some of the rest."""
        if self._overflow is None or self._failures:
            return False
        is_in_time = not self._is_slow and time.monotonic() < self._replay_until
        return self._overflow.is_soon_empty or (self._overflow.has_more and is_in_time)

    def _is_well(self) -> bool:
        """Whether the store takes what comes: it took the last batch in time, or there is nothing to try it with."""
        if not self._failures and not self._is_slow:
            return True
        return self._given is None and time.monotonic() >= self._retry_at and not self._has_more()

    def _has_more(self) -> bool:
        return self._overflow is not None and self._overflow.has_more

    def _give(self, batch: Batch) -> None:
        self._given = batch
        batch.is_awaited = batch.from_spool or not batch.left or self._failures > 0 or self._has_more()
        self._writer.store(batch)

    def _hasten(self) -> bool:
        """Wait out no pause once the end has begun."""
        if self._is_ending or not self._queue.is_closed:
            return False
        self._is_ending = True
        self._retry_at = 0.0
        self._replay_until = time.monotonic() + _LAST_REPLAY_SECONDS
        return True

    def _collect(self) -> bool:
        """Take note of a batch that the writer is done with."""
        given = self._given
        if given is None or self._writer.batch is not None:
            return False
        self._given = None
        failure = self._writer.failure
        if failure is not None:
            if not given.from_spool and not given.is_revoked:
                self._hold(given)
            self._failures += 1
            delay = self._backoff.delay(self._failures)
            self._retry_at = time.monotonic() + (min(delay, _PAUSE_AT_THE_END) if self._is_ending else delay)
            self._rate_limited_log.warn("records wait because the store is unavailable: %s", failure)
            return True
        if self._failures:
            _log.info("the store is back after %d failures", self._failures)
            self._failures = 0
        self._is_slow = given.is_revoked or self._writer.seconds > self._timeout_seconds
        if given.from_spool and self._overflow is not None:
            self._overflow.settled(given)
            self._replay_at = time.monotonic() + rest_after(self._writer.seconds)
        return True

    def _is_storing(self) -> bool:
        """Whether the writer has records that are nowhere else."""
        given = self._given
        return given is not None and not given.from_spool and not given.is_revoked

    def _relieve(self) -> bool:
        """Expect nothing more from a store that has a batch for too long, or blocks the way of others: it is spooled.

        What follows in the spool must not pass what is with the store. So that is spooled as well; if the store takes
        it after all, it will be given the same again, which changes nothing.
        """
        given = self._given
        if given is None or self._overflow is None or given.is_revoked:
            return False
        is_late = self._writer.seconds > self._timeout_seconds
        if not self._is_storing():
            news, self._is_slow = is_late and not self._is_slow, self._is_slow or is_late
            return news
        is_in_the_way = self._held and self._queue.is_pressed() and not self._overflow.is_refusing
        if not is_late and not is_in_the_way:
            return False
        if self._writer.is_open:
            self._rate_limited_log.warn("records go to the spool, the store is slow or hangs")
        self._is_slow = True
        self._hold(self._queue.revoke(given))
        return True

    def _hold(self, given: Batch) -> None:
        """Take in hand what was with the writer, and behind it what was to follow."""
        self._held.appendleft(given)
        if self._ready is not None:
            self._held.append(self._ready)
            self._ready = None

    def _place(self) -> bool:
        """Put what is held into the spool, or give it to the store when its turn has come; whether that was done."""
        if not self._held or self._is_storing():
            return False
        batch = self._held[0]
        if batch.left and not (self._overflow is not None and self._overflow.keep(batch)):
            if self._given is not None or self._has_more() or time.monotonic() < self._retry_at:
                return False
            self._give(batch)
        self._held.popleft()
        return True

    def _take(self) -> bool:
        """Take a batch from the queue, for the store if it is free, else for the spool; whether there was one."""
        if not self._can_take():
            return False
        batch = self._ready or self._made(self._queue.take())
        self._ready = None
        if self._is_storing():
            self._spill(batch)
            return True
        if self._given is not None or not self._is_well():
            self._held.append(batch)
            return True
        if self._has_more():
            self._hold_back(self._queue.split(batch, _depends_on_order))
        if batch.left:
            self._since_replay += 1
            self._give(batch)
        return True

    def _spill(self, batch: Batch) -> None:
        """Spool of a batch what may pass the one that is being stored; the rest waits for that."""
        rest = self._queue.split(batch, _depends_on_order)
        if batch.left and not (self._overflow is not None and self._overflow.keep(batch)):
            self._held.append(batch)
        self._hold_back(rest)

    def _hold_back(self, rest: Batch) -> None:
        """Take the rest of a batch in hand, if there is any: a store that works is relieved of nothing for its sake."""
        if rest.left:
            rest.is_held_back = True
            self._held.append(rest)

    def _can_take(self) -> bool:
        """True if there is a batch and a place for it; also called by the holder of the queue's lock."""
        if self._held:
            return self._may_pass_held() and self._queue.due_in() == 0.0
        if self._is_storing():
            return self._overflow is not None and self._queue.is_pressed()
        if self._queue.is_pressed():
            return self._overflow is not None or (self._given is None and self._is_well())
        if self._ready is None and self._queue.due_in() != 0.0:
            return False
        if not self._is_well():
            return self._overflow is not None
        return self._given is None and not (self._is_turn_of_replay() and self._can_replay())

    def _may_pass_held(self) -> bool:
        """True if pending batches only wait for space in a full spool, and a working store can take the rest."""
        if self._overflow is None or not self._overflow.is_refusing or not self._has_more():
            return False
        is_free = self._given is None and self._is_well() and not (self._is_turn_of_replay() and self._can_replay())
        return is_free and all(batch.is_held_back for batch in self._held)

    def _prepare(self) -> bool:
        """Make the next batch while the store has one, so that it need not wait for that; whether one was made."""
        if not self._can_prepare():
            return False
        self._ready = self._made(self._queue.take())
        return True

    def _can_prepare(self) -> bool:
        return self._ready is None and not self._held and self._is_storing() and self._queue.due_in() == 0.0

    def _made(self, batch: Batch) -> Batch:
        for item in batch.items:
            try:
                record = item if isinstance(item, Record) else item.record()
                batch.records.append(record)
                if self._on_record is not None:
                    self._on_record(record)
            except Exception:  # noqa: BLE001  # one bad record must not stop the others
                self._queue.not_made(batch)
                self._rate_limited_log.warn("a record could not be made; it is dropped", traceback=True)
        return batch

    def _can_replay(self) -> bool:
        now = time.monotonic()
        return self._given is None and self._has_more() and now >= self._retry_at and now >= self._replay_at

    def _is_turn_of_replay(self) -> bool:
        """Whether what comes has had its turn: one batch, or some where more came than the store could take."""
        return self._since_replay >= (_TURNS_WHEN_BEHIND if self._queue.is_behind() else 1)

    def _replay(self) -> bool:
        """Give the oldest records of the spool to the store; whether there were any."""
        if self._overflow is None or not self._can_replay():
            return False
        batch = self._overflow.next()
        if batch is not None:
            self._since_replay = 0
            self._give(batch)
        elif self._has_more():
            self._replay_at = time.monotonic() + _PAUSE_AFTER_A_FAULT
        return batch is not None

    def _wait(self) -> None:
        """Until something has changed, or the time has come to look whether there is anything to do."""
        self._tell_losses()
        with self._queue.changed:
            if self._is_called():
                return
            is_flow = self._queue.next_look_in() is not None
            is_notified = self._queue.changed.wait(self._look_again_in())
            if is_flow and not is_notified and (due := self._queue.due_in()) and not self._queue.is_pressed():
                self._queue.changed.wait(due)  # nothing but records came, and a batch is closed by its age

    def _is_called(self) -> bool:
        if self._given is not None and self._writer.batch is None:
            return True
        is_news = self._queue.is_abandoned or (self._queue.is_closed and not self._is_ending)
        is_pressed = self._overflow is not None and self._is_storing() and self._queue.is_pressed()
        return is_news or is_pressed or self._can_take() or self._can_prepare()

    def _look_again_in(self) -> float | None:
        """The least of all times that something is due in, in seconds."""
        now = time.monotonic()
        due = self._queue.due_in()
        is_replaying = self._given is not None and not self._is_storing() and self._is_well()
        waits = self._held and not self._may_pass_held()
        times = [None if waits or self._ready or is_replaying else due, self._queue.next_look_in()]
        if self._overflow is not None:
            times += [self._overflow.sync_in(), self._overflow.pause() if self._held else None]
        if self._given is None:
            if self._held or self._has_more() or self._failures:
                times.append(max(self._retry_at, self._replay_at) - now)
        elif self._overflow is not None and (self._is_storing() or not (self._is_slow or self._given.is_revoked)):
            times.append(self._timeout_seconds - self._writer.seconds)
        known = [max(_MIN_WAIT_SECONDS, each) for each in times if each is not None]
        return min(known, default=None)

    def _finish(self) -> None:
        """Bring to the spool, or drop, what is left."""
        if self._overflow is not None:
            self._await_replayed()
            self._overflow.hurry()
            if self._given is not None and self._is_storing():
                self._hold(self._queue.revoke(self._given))
        elif self._given is not None:
            self._await_writer()
        for batch in [*self._held, *([self._ready] if self._ready else [])]:
            self._keep_or_lose(batch)
        while not self._queue.is_empty():
            self._keep_or_lose(self._made(self._queue.take()))
        if self._overflow is not None:
            self._overflow.close()
        self._tell_losses()
        self._writer.end()

    def _await_replayed(self) -> None:
        """Give the writer a moment with what it has from the spool: what it stores now is not to stay there."""
        given = self._given
        if given is None or not given.from_spool:
            return
        if not self._await_writer():
            self._queue.revoke(given)  # it stays in the spool, and counts as there

    def _await_writer(self) -> bool:
        """Wait a moment for the batch that the writer has; return True if it is settled or held."""
        with self._queue.changed:
            self._queue.changed.wait_for(lambda: self._writer.batch is None, _LAST_BATCH_SECONDS)
        return self._collect()

    def _keep_or_lose(self, batch: Batch) -> None:
        if batch.left and not (self._overflow is not None and self._overflow.keep(batch)):
            self._queue.lose(batch)

    def _tell_losses(self) -> None:
        lost = self._queue.overflowed
        if lost > self._lost and self._rate_limited_log.warn("the queue is full; %d records were dropped so far", lost):
            self._lost = lost


def _depends_on_order(record: Record) -> bool:
    return not isinstance(record, ToolInvocation | Exposure)
