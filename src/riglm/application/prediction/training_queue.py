"""What calls teach, learned when the calls are out of the way."""

import asyncio
import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Final

MAX_UPDATES: Final = 256
"""Maximum number of waiting training examples; of more, a random sample waits, and of the rest the pair update."""

MAX_PAIR_UPDATES: Final = 2_000
"""Maximum number of waiting pair updates; further ones are learned at once if learning has begun."""

Update = Callable[[], None]

_PAUSE_SECONDS: Final = 0.01
_SHARE: Final = 0.1
_SHARE_BESIDE_CALLS: Final = 0.02
_TELLING_SECONDS: Final = 60.0
_log: Final = logging.getLogger("riglm.prediction")


class TrainingQueue:
    """A queue that is worked off on the event loop one at a time, in at most a tenth of its time.

    While calls follow each other closely it takes a fiftieth, because a call during an update waits for its end.
    Until `begin` nothing is learned: what calls teach is added to what earlier runs taught, which is loaded first.

    A full update is expensive and can be rebuilt from the store at the next start. A pair update is cheap and exists
    nowhere else: pair updates come before full updates, and the end waits for them.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` measures the duration of an update, in seconds."""
        self._clock = clock
        self._arrived = 0
        self._random = random.Random(0)  # noqa: S311  # a sample
        self._pair_updates: deque[Update] = deque()
        self._waiting: deque[tuple[Update, Update | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._begun = False
        self._last_seconds = 0.0
        self._last_end = -math.inf
        self._last_added = -math.inf
        self._skipped = 0
        self._last_told = -math.inf

    def __len__(self) -> int:
        return len(self._pair_updates) + len(self._waiting)

    def add(self, whole: Update, pair_update: Update | None = None) -> None:
        """Queue an update, or at least its pair update, which is a part of it; neither may raise.

        If too many come, each has the same chance to wait (algorithm R: Vitter, "Random sampling with a reservoir").
        """
        self._arrived = self._arrived + 1 if self._waiting else 1
        self._waiting.append((whole, pair_update))
        self._wait()
        if len(self._waiting) > MAX_UPDATES:
            place = min(self._random.randrange(self._arrived), MAX_UPDATES)
            _, gist = self._waiting[place]
            del self._waiting[place]
            self._skip(1)
            if gist is not None:
                self.add_gist(gist)

    def add_gist(self, pair_update: Update) -> None:
        """Have something learned for sure; it must not raise."""
        if len(self._pair_updates) < MAX_PAIR_UPDATES:
            self._pair_updates.append(pair_update)
            self._wait()
        elif self._begun:
            pair_update()
        else:
            self._skip(1)

    def begin(self) -> None:
        """Start with what waits."""
        self._begun = True
        self._set_timer()

    def catch_up(self) -> None:
        """Learn all that waits now, if learning has begun: no call is delayed by it."""
        while self._begun and self._pair_updates:
            self._pair_updates.popleft()()
        while self._begun and self._waiting:
            self._waiting.popleft()[0]()

    def finish(self, seconds: float) -> None:
        """Learn the remaining pair updates, and full updates while there is time, if learning has begun."""
        until = self._clock() + seconds
        while self._begun and self._pair_updates:
            self._pair_updates.popleft()()
        while self._begun and self._waiting and self._clock() < until:
            self._waiting.popleft()[0]()
        self._skip(len(self))
        for _, pair_update in self._waiting if self._begun else ():
            if pair_update is not None:
                pair_update()
        self._pair_updates.clear()
        self._waiting.clear()
        self._begun = False
        self._notify()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._last_added = self._clock()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._begun and len(self) and self._timer is None:
            pause = max(_PAUSE_SECONDS, self._last_seconds / _SHARE)
            self._timer = asyncio.get_running_loop().call_later(pause, self._learn_next)

    def _learn_next(self) -> None:
        self._timer = None
        began = self._clock()
        if len(self) and not self._is_in_the_way(began):
            training_update = self._pair_updates.popleft() if self._pair_updates else self._waiting.popleft()[0]
            training_update()
            self._last_end = self._clock()
            self._last_seconds = self._last_end - began
        self._set_timer()

    def _is_in_the_way(self, now: float) -> bool:
        """True if a call may come at any moment, and there was an update shortly before."""
        has_calls = now - self._last_added < _PAUSE_SECONDS
        return has_calls and now - self._last_end < self._last_seconds / _SHARE_BESIDE_CALLS

    def _skip(self, count: int) -> None:
        self._skipped += count
        if self._skipped and self._clock() - self._last_told >= _TELLING_SECONDS:
            self._notify()

    def _notify(self) -> None:
        if self._skipped:
            _log.warning(
                "%d training examples were left out for lack of time: what these calls teach about their order "
                "counts from the next start on",
                self._skipped,
            )
            self._last_told, self._skipped = self._clock(), 0
