"""What the recorded sessions of each scope taught the strategy: who learns from whom."""

import asyncio
import logging
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Final

from riglm.application.failing_open import FailingOpen
from riglm.application.prediction.calibration import CalibratedPredictor
from riglm.application.worker import Worker
from riglm.domain.learning import SIGNALS
from riglm.domain.naming import server_in
from riglm.domain.prediction import PredictionInput
from riglm.domain.session_state import MAX_CALLS
from riglm.ports.analytics import TrainingSession
from riglm.ports.predictor import PredictorPort

MAX_LEARNED_CALLS: Final = 2_000
"""Maximum number of calls to learn: `hybrid` takes up to a millisecond for each, in the background."""

MAX_CANDIDATES: Final = 500_000
"""Maximum number of candidates of all learned calls together; older sessions are learned without their catalogs."""

MAX_SCOPES: Final = 128
"""Maximum number of scopes in memory, the latest used; others are learned again when they are needed."""

_GROWTH: Final = 0.3
_MAX_CHANGED: Final = 20_000
_log: Final = logging.getLogger("riglm.prediction")


def training_examples(
    history: Sequence[TrainingSession], owner: Callable[[str], str]
) -> Iterator[tuple[PredictionInput, str, float]]:
    """Yield what was known before each successful call of recorded sessions, its tool and its weight, in order.

    Where the tools of a session are not known, or more than `MAX_CANDIDATES` with those of later sessions, the
    candidates are the tools that were called in any session. `owner` returns the upstream server of a tool, empty if it
    is not known yet.
    """
    servers = {call.tool: call.upstream for session in history for call in session.calls}
    called = tuple(servers)
    sizes = [*accumulate(len(each.calls) * len(each.tools_available) for each in reversed(history))]
    for session, size in zip(history, reversed(sizes), strict=True):
        tools = session.tools_available if size <= MAX_CANDIDATES else ()
        for tool in tools:
            if tool not in servers:
                servers[tool] = owner(tool) or server_in(tool)
        before: deque[str] = deque(maxlen=MAX_CALLS)
        for call in session.successes[-MAX_LEARNED_CALLS:]:
            prediction_input = PredictionInput(
                candidates=tools or called,
                calls=tuple(before),
                servers=servers,
                principal=session.principal,
                profile=session.profile,
                client=session.client,
                project=session.project,
                time=call.timestamp,
            )
            yield prediction_input, call.tool, SIGNALS[call.found]
            before.append(call.tool)


class ScopeModels:
    """A model for each scope, which learned the scope's recorded sessions on a separate thread.

    A model is made when its scope is first asked for, and made again when sessions that ended since are more than 30 %
    of those that it learned; until then the one before answers. Public methods are called on the event loop.
    """

    def __init__(
        self,
        make: Callable[[], PredictorPort],
        recorded: Callable[[str], Sequence[TrainingSession]],
        owner: Callable[[str], str],
        worker: Worker,
        clock: Callable[[], float],
    ) -> None:
        """`make` returns a strategy that has learned nothing; `recorded` returns the latest sessions of a scope.

        Both run on the worker, and may raise. `owner` returns the upstream server of a tool, empty if it is not known.
        """
        self._make = make
        self._recorded = recorded
        self._owner = owner
        self._clock = clock
        self._models: OrderedDict[str, CalibratedPredictor] = OrderedDict()
        self._ended = Counter[str]()
        self._learning: dict[str, asyncio.Task[None]] = {}
        self._outdated: set[str] = set()
        self._unread: set[str] = set()
        self._changed: dict[str, float] = {}
        self._is_closed = False
        self._worker = worker
        self._guarded = FailingOpen(_log, "a predictor could not learn; what was learned before goes on to count, and")
        self._reading = FailingOpen(_log, "past sessions could not be read again; the current models stay, and")

    def of(self, scope: str) -> CalibratedPredictor | None:
        """Return the model of a scope, None until it is made."""
        model = self._models.get(scope)
        is_due = model is None or scope in self._unread or self._ended[scope] > _GROWTH * model.sessions
        if is_due and scope not in self._learning:
            self._learn(scope)
        if model is not None:
            self._models.move_to_end(scope)
        return model

    def ended(self, scope: str) -> None:
        """Note that a session of a scope with recorded calls has ended."""
        if scope in self._models:
            self._ended[scope] += 1

    async def ready(self, scope: str, seconds: float) -> None:
        """Wait until a scope has a model, or could not have one, at most this many seconds."""
        if self.of(scope) is None:
            await self.up_to_date(scope, seconds)

    async def up_to_date(self, scope: str, seconds: float | None = None) -> None:
        """Wait until a scope has a model that needs not be made again, at most this many seconds."""
        self.of(scope)
        if scope in self._learning:
            await asyncio.wait({self._learning[scope]}, timeout=seconds)

    def forget(self, tool: str) -> None:
        """Leave out the calls of a tool until now: its description has changed.

        Models that learned them are made again at once after the first change of a tool. After further changes they are
        left out when a model is due, because a description may change with every list.
        """
        is_first = self._changed.pop(tool, None) is None
        self._changed[tool] = self._clock()
        if len(self._changed) > _MAX_CHANGED:
            del self._changed[next(iter(self._changed))]
        known = {scope for scope, model in self._models.items() if tool in model.tools}
        for scope in {*self._learning, *known} if is_first else ():
            self._learn(scope)

    def relearn(self) -> None:
        """Make all models again from what is recorded now; the current ones are used until then."""
        for scope in {*self._models, *self._learning}:
            self._learn(scope)

    def follow(self, make: Callable[[], PredictorPort], done: Callable[[], None]) -> None:
        """Make all models again with another strategy; `done` is called once they answer."""
        self._make = make
        self.relearn()
        learned = asyncio.gather(*self._learning.values(), return_exceptions=True)
        learned.add_done_callback(lambda _: None if self._is_closed else done())

    def clear(self) -> None:
        """Drop all models: who learns from whom has changed."""
        self.relearn()
        self._models.clear()

    def close(self) -> None:
        """Stop learning."""
        self._is_closed = True
        for task in self._learning.values():
            task.cancel()

    def _learn(self, scope: str) -> None:
        if scope in self._learning:
            self._outdated.add(scope)
        elif not self._is_closed:
            task = self._learning[scope] = asyncio.get_running_loop().create_task(self._replace(scope))
            task.add_done_callback(lambda _: self._learning.pop(scope))

    async def _replace(self, scope: str) -> None:
        with self._guarded:
            is_outdated = True
            while is_outdated:
                self._outdated.discard(scope)
                self._ended.pop(scope, None)
                job = partial(self._learned, self._make, scope, dict(self._changed), self._models.get(scope))
                model = await self._worker.run(job)
                is_outdated = scope in self._outdated
            self._models[scope] = model
            while len(self._models) > MAX_SCOPES:
                self._models.popitem(last=False)

    def _learned(
        self,
        make: Callable[[], PredictorPort],
        scope: str,
        changed: Mapping[str, float],
        before: CalibratedPredictor | None,
    ) -> CalibratedPredictor:
        """Return a model of the recorded sessions, without calls of tools before their descriptions changed.

        If the sessions cannot be read, the model `before` is returned, or one that has learned nothing.
        """
        model, history = CalibratedPredictor(make()), None
        with self._reading:
            history = self._recorded(scope)
        if history is None:
            self._unread.add(scope)
            return before or model
        self._unread.discard(scope)
        history = [
            replace(
                session,
                calls=tuple(call for call in session.calls if call.timestamp >= changed.get(call.tool, -math.inf)),
            )
            for session in history
        ]
        for prediction_input, tool, weight in training_examples(history, self._owner):
            if self._is_closed:
                break
            model.learn(prediction_input, tool, weight)
        model.end_session()
        return model
