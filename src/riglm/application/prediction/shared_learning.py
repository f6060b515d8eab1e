"""What one process learns, the others learn too, from the store that they share."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from riglm.application.failing_open import FailingOpen
from riglm.application.prediction.prediction_service import PredictionService
from riglm.application.session_sharing.signing import Broadcast
from riglm.application.worker import Urgency, Worker

PAIRS_CHANNEL: Final = "pairs"
"""The kind of broadcast that reports new learned pairs."""

ENDED_CHANNEL: Final = "session-ended"
"""The kind of broadcast that reports the learning scope of a session that has ended."""

_DELAY_SECONDS: Final = 1.0
_ATTEMPTS: Final = 3
"""A store may take a while to hold what was learned."""

_log: Final = logging.getLogger("riglm.prediction")


class SharedLearning:
    """Reports to other processes what they can learn from the store, and learns what they report."""

    def __init__(
        self, prediction: PredictionService, news: Broadcast, worker: Worker, *, delay: float = _DELAY_SECONDS
    ) -> None:
        """Pairs are read from the store `delay` seconds after there are new ones."""
        self._prediction = prediction
        self._worker = worker
        self._delay = delay
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_catching_up = False
        self._guarded = FailingOpen(_log, "what other processes learned could not be read; what is known counts, and")
        prediction.on_learned(
            lambda: self._start(news.notify(PAIRS_CHANNEL, "", "")),
            lambda scope: self._start(news.notify(ENDED_CHANNEL, "", scope)),
        )
        news.on(PAIRS_CHANNEL, self._on_pairs)
        news.on(ENDED_CHANNEL, lambda _, scope: prediction.ended_elsewhere(scope))

    def _on_pairs(self, *_: str) -> None:
        if not self._is_catching_up:
            self._is_catching_up = True
            self._start(self._catch_up())

    async def _catch_up(self) -> None:
        """Take the newest pairs from the store, once they are there."""
        for attempt in range(_ATTEMPTS):
            await asyncio.sleep(self._delay * 2**attempt)
            self._is_catching_up = False  # what is learned from here on may not be among what is read now
            state = self._prediction.state
            if state is None or not state.is_open:
                return
            with self._guarded:
                newest = await asyncio.wrap_future(self._worker.submit(state.stored_pairs, Urgency.LATER))
                if state.learner.pairs.catch_up(newest):
                    return

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
