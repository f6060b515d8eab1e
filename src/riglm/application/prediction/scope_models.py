"""What was learned from calls, kept apart for each scope: who learns from whom."""

import asyncio
import contextlib
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from riglm.application.prediction.calibration import CalibratedPredictor
from riglm.application.worker import Urgency, Worker
from riglm.domain.learning import SIGNALS
from riglm.domain.naming import server_in
from riglm.domain.prediction import PredictionInput
from riglm.domain.session_state import MAX_CALLS
from riglm.ports.analytics import TrainingCall, TrainingSession

MAX_REPLAYED_CALLS: Final = 2_000
"""Maximum number of calls to replay: `hybrid` takes up to a millisecond for each, in the background of a start."""

MAX_CANDIDATES: Final = 500_000
"""Maximum number of candidates of all replayed calls together; older sessions are replayed without their catalogs."""


class SequenceExample(NamedTuple):
    """A call of `tool`."""

    prediction_input: PredictionInput
    tool: str
    signal: float


def latest(
    history: Sequence[TrainingSession], most: int = MAX_REPLAYED_CALLS, most_candidates: int = MAX_CANDIDATES
) -> list[TrainingSession]:
    """Return the latest sessions, oldest first, with their last successful calls, at most `most` together.

    Sessions whose calls have more than `most_candidates` candidates, counted from the latest on, lose their catalogs.
    """
    found: list[TrainingSession] = []
    for session in reversed(history):
        if most <= 0:
            break
        calls = session.successes[-most:]
        most -= len(calls)
        most_candidates -= len(calls) * len(session.tools_available)
        tools = session.tools_available if most_candidates >= 0 else ()
        found.append(replace(session, calls=calls, tools_available=tools))
    return found[::-1]


def training_examples(history: Sequence[TrainingSession], owner: Callable[[str], str]) -> Iterator[SequenceExample]:
    """Yield the successful calls of recorded sessions in order, as they were when they were made.

    Where the tools of a session are not known, the candidates are the tools that were called in any session. `owner`
    returns the upstream server of a tool, empty if it is not known yet.
    """
    servers = {call.tool: call.upstream for session in history for call in session.calls}
    called = tuple(servers)
    for session in history:
        for tool in session.tools_available:
            if tool not in servers:
                servers[tool] = owner(tool) or server_in(tool)
        before: deque[str] = deque(maxlen=MAX_CALLS)
        for call in session.successes:
            prediction_input = PredictionInput(
                candidates=session.tools_available or called,
                calls=tuple(before),
                servers=servers,
                principal=session.principal,
                profile=session.profile,
                client=session.client,
                project=session.project,
                time=call.timestamp,
            )
            yield SequenceExample(prediction_input, call.tool, SIGNALS[call.found])
            before.append(call.tool)


MAX_SCOPES: Final = 32
"""Maximum number of scopes in memory, the latest used; others are replayed when they are needed."""

_MAX_CHANGED: Final = 20_000
_SLICE_SECONDS: Final = 0.05  # the longest that other work of the worker waits for a replay
_log: Final = logging.getLogger("riglm.prediction")

OnLoop = Callable[[Callable[[], None]], object]
"""Has something done on the event loop, asked from any thread."""


@dataclass(slots=True, kw_only=True)
class ScopeModel:
    """What the calls of one scope taught; `used` are the tools that were called.

    Recorded calls were replayed up to the time `replayed_until`.
    """

    predictor: CalibratedPredictor
    used: set[str] = field(default_factory=set)
    replayed_until: float = -math.inf

    def learn(self, prediction_input: PredictionInput, tool: str, signal: float) -> None:
        """A call of `tool` was made in `prediction_input`, with the weight of `signal`."""
        self.predictor.learn(prediction_input, tool, signal)
        self.used.add(tool)

    def replay(self, example: SequenceExample) -> None:
        """Learn a recorded call; sessions are replayed one after the other."""
        if not example.prediction_input.calls:
            self.predictor.end_sessions()
        self.learn(example.prediction_input, example.tool, example.signal)


class ScopeModels:
    """Experience by scope, made on the worker from the scope's recorded sessions when it is first asked for.

    Until it is made, it is that of a cold start. Everything is called on the event loop.
    """

    def __init__(
        self,
        make: Callable[[], ScopeModel],
        recorded: Callable[[str], Sequence[TrainingSession]],
        owner: Callable[[str], str],
        worker: Worker,
        on_loop: OnLoop,
        clock: Callable[[], float],
    ) -> None:
        """`make` gives experience that knows nothing; `recorded`, the latest sessions of a scope, blocks, may raise.

        `owner` returns the upstream server of a tool, empty if it is not known.
        """
        self._make = make
        self._recorded = recorded
        self._owner = owner
        self._worker = worker
        self._on_loop = on_loop
        self._clock = clock
        self._cold = make()
        self._held: OrderedDict[str, ScopeModel] = OrderedDict()
        self._loading: dict[str, asyncio.Event] = {}
        self._meanwhile: dict[str, list[tuple[float, Callable[[ScopeModel], None]]]] = {}
        self._outdated: set[str] = set()
        self._changed: dict[str, float] = {}
        self._on_reload: Callable[[], None] | None = None

    def of(self, scope: str) -> ScopeModel:
        """What was learned in a scope; that of a cold start, which is not to be taught, while it is replayed."""
        return self.held(scope) or self._cold

    def held(self, scope: str) -> ScopeModel | None:
        """What was learned in a scope; None, while it is replayed."""
        found = self._held.get(scope)
        if found is None:
            self._load(scope)
        else:
            self._held.move_to_end(scope)
        return found

    def teach(self, scope: str, at: float, training_update: Callable[[ScopeModel], None]) -> None:
        """Have a call at a time learned, also by experience that is being replayed from a record without it."""
        held = self.held(scope)
        if held is not None and at >= held.replayed_until:
            training_update(held)
        if scope in self._loading:
            self._meanwhile.setdefault(scope, []).append((at, training_update))

    def known(self, scope: str) -> ScopeModel | None:
        """Return the model of a scope that is in memory, None for another scope."""
        return self._held.get(scope)

    async def ready(self, scope: str, seconds: float) -> None:
        """Wait until a scope is replayed, at most this many seconds."""
        if self.held(scope) is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._loading[scope].wait()

    def forget(self, tool: str) -> None:
        """What was learned of a tool does not count any more, from its calls until now."""
        self._changed.pop(tool, None)
        self._changed[tool] = self._clock()
        if len(self._changed) > _MAX_CHANGED:
            del self._changed[next(iter(self._changed))]
        self._outdated.update(self._loading)
        for scope, scope_model in self._held.items():
            if tool in scope_model.used:
                scope_model.used.discard(tool)
                self._load(scope)

    def reread(self) -> None:
        """Rebuild all scope models from what is recorded now; the current ones are used until then."""
        self._outdated.update(self._loading)
        for scope in self._held:
            self._load(scope)

    def reload(self, done: Callable[[], None], *, forget: bool) -> None:
        """Rebuild all scope models because `make` creates a different one now; the current ones are used until then.

        `done` is called on the event loop. With `forget`, the current models are dropped at once.
        """
        if forget:
            self._held.clear()
        self._on_reload = done
        self._worker.submit(self._start_cold, Urgency.LATER)
        self.reread()

    def _load(self, scope: str) -> None:
        if scope not in self._loading:
            self._loading[scope] = asyncio.Event()
            self._worker.submit(partial(self._start, scope, dict(self._changed)), Urgency.LATER)

    def _start_cold(self) -> None:
        try:
            cold = self._make()
        except Exception:  # noqa: BLE001  # the cold start of before is better than none
            _log.warning("the predictor could not be made: the one before goes on", exc_info=True)
            cold = self._cold
        self._on_loop(lambda: self._take_cold(cold))

    def _take_cold(self, cold: ScopeModel) -> None:
        self._cold = cold
        self._tell_anew()

    def _tell_anew(self) -> None:
        if self._on_reload is not None and not self._loading:
            done, self._on_reload = self._on_reload, None
            done()

    def _start(self, scope: str, changed: Mapping[str, float]) -> None:
        made = self._make()
        made.replayed_until = self._clock()
        try:
            examples = training_examples(self._history(scope, changed), self._owner)
        except Exception:  # noqa: BLE001  # what was known before, or nothing, goes on to count
            self._fail(scope)
        else:
            self._go_on(scope, made, examples)

    def _go_on(self, scope: str, made: ScopeModel, examples: Iterator[SequenceExample]) -> None:
        """Replay for a short while, and come back for the rest."""
        until = time.perf_counter() + _SLICE_SECONDS
        try:
            for example in examples:
                made.replay(example)
                if time.perf_counter() >= until:
                    self._worker.submit(partial(self._go_on, scope, made, examples), Urgency.LATER)
                    return
            made.predictor.end_sessions()
        except Exception:  # noqa: BLE001  # what was known before, or nothing, goes on to count
            self._fail(scope)
        else:
            self._on_loop(lambda: self._take(scope, made))

    def _fail(self, scope: str) -> None:
        _log.warning("past sessions could not be read again; the current models stay", exc_info=True)
        blank = self._make()
        self._on_loop(lambda: self._take(scope, blank if self._on_reload else self._held.get(scope, blank)))

    def _take(self, scope: str, made: ScopeModel) -> None:
        is_new = made is not self._held.get(scope)
        for at, training_update in self._meanwhile.pop(scope, ()):
            if is_new and at >= made.replayed_until:
                training_update(made)
        self._held[scope] = made
        while len(self._held) > MAX_SCOPES:
            self._held.popitem(last=False)
        done = self._loading.pop(scope)
        if scope in self._outdated:
            self._outdated.discard(scope)
            self._load(scope)
        done.set()
        self._tell_anew()

    def _history(self, scope: str, changed: Mapping[str, float]) -> list[TrainingSession]:
        """The sessions to replay, without the calls of tools that were something else by then."""
        sessions = self._recorded(scope)
        if changed:
            sessions = [replace(each, calls=tuple(_of_today(each.calls, changed))) for each in sessions]
        return latest(sessions)


def _of_today(calls: Sequence[TrainingCall], changed: Mapping[str, float]) -> Iterator[TrainingCall]:
    return (call for call in calls if call.timestamp >= changed.get(call.tool, -math.inf))
