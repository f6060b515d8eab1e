"""What one process learns, the others learn too: calls from each other, contexts from the store that they share."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from riglm.application.prediction.service import PredictionService
from riglm.application.session_sharing.signing import Broadcast
from riglm.application.worker import Urgency, Worker
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.learning import LearnedPair
from riglm.domain.prediction import PredictionInput
from riglm.domain.session_state import MAX_CALLS
from riglm.ports.analytics import AnalyticsPort

TRAINING_CHANNEL: Final = "training"
"""The kind of broadcast that contains a training example."""

_DELAY_SECONDS: Final = 1.0
_ATTEMPTS: Final = 3
"""A store may take a while to hold what was learned."""

_log: Final = logging.getLogger("riglm.prediction")


class _TrainingMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call as others learn from it; without `calls` only that some context has a new pair."""

    tool: str
    found: DiscoveryMethod
    calls: tuple[str, ...] | None = None
    principal: str = ""
    client: str = ""
    time: float = 0.0
    profile: str = ""
    paired: bool = False
    project: str = ""


class SharedLearning:
    """Publishes the training examples of this process, and learns those of other processes."""

    def __init__(
        self,
        prediction: PredictionService,
        news: Broadcast,
        worker: Worker,
        open_store: Callable[[], AnalyticsPort],
        *,
        delay: float = _DELAY_SECONDS,
    ) -> None:
        """Pairs are read from the store `delay` seconds after there are new ones."""
        self._prediction = prediction
        self._news = news
        self._worker = worker
        self._open_store = open_store
        self._delay = delay
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_catching_up = False
        prediction.on_learned(self._learned)
        news.on(TRAINING_CHANNEL, self._heard)

    def _learned(self, prediction_input: PredictionInput | None, tool: str, found: DiscoveryMethod) -> None:
        if prediction_input is None:
            training_update = _TrainingMessage(tool, found, paired=True)
        else:
            training_update = _TrainingMessage(
                tool,
                found,
                prediction_input.calls,
                prediction_input.principal,
                prediction_input.client,
                prediction_input.time,
                prediction_input.profile,
                paired=prediction_input.context is not None,
                project=prediction_input.project,
            )
        self._start(self._news.notify(TRAINING_CHANNEL, "", msgspec.json.encode(training_update).decode()))

    def _heard(self, _: str, what: str) -> None:
        try:
            training_update = msgspec.json.decode(what, type=_TrainingMessage)
        except msgspec.MsgspecError:
            _log.warning("ignored an invalid training example of another process")
            return
        if training_update.calls is not None:
            prediction_input = PredictionInput(
                candidates=(),
                calls=training_update.calls[-MAX_CALLS:],
                principal=training_update.principal,
                profile=training_update.profile,
                client=training_update.client,
                project=training_update.project,
                time=training_update.time,
            )
            self._prediction.learn_along(prediction_input, training_update.tool, training_update.found)
        if training_update.paired and not self._is_catching_up:
            self._is_catching_up = True
            self._start(self._catch_up())

    async def _catch_up(self) -> None:
        """Take the newest pairs from the store, once they are there."""
        for attempt in range(_ATTEMPTS):
            await asyncio.sleep(self._delay * 2**attempt)
            self._is_catching_up = False  # what is learned from here on may not be among what is read now
            knowledge = self._prediction.knowledge
            if knowledge is None or not knowledge.is_open:
                return
            reading = partial(self._read, knowledge.embedder.model, knowledge.learner.most_pairs)
            newest = await asyncio.wrap_future(self._worker.submit(reading, Urgency.LATER))
            if knowledge.pairs.catch_up(newest):
                return

    def _read(self, model: str, most: int) -> Sequence[LearnedPair]:
        try:
            with self._open_store() as store:
                return store.list_learned_pairs(model, most)
        except Exception:  # noqa: BLE001  # what is known here goes on to count
            _log.warning("what other processes learned could not be read", exc_info=True)
            return ()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
