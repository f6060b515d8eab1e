"""What each call and each mark teaches, and whom."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from riglm.application.failing_open import FailingOpen
from riglm.application.prediction.training_queue import TrainingQueue
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.learning import SIGNALS
from riglm.domain.prediction import Context, PredictionInput
from riglm.domain.session import Session

if TYPE_CHECKING:  # numpy comes with it, and is imported on the worker
    from riglm.application.prediction.prediction_state import PredictionState
    from riglm.application.prediction.scope_models import ScopeModel

_log: Final = logging.getLogger("riglm.prediction")

TrainingCallback = Callable[[PredictionInput | None, str, DiscoveryMethod], None]
"""Called with what was known before a call, its tool and its discovery; without a situation, the context counts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingExample:
    """A call of `tool` by a session that learns for `scope`, `at` seconds since the epoch, and its `contexts`."""

    contexts: Sequence[Context]
    tool: str
    found: DiscoveryMethod
    scope: str
    at: float
    session: Session


class Trainer:
    """Queues updates: the pair update is cheap and exists nowhere else, the order of calls can be rebuilt.

    A call is learned whole before its pair is, or its pair would foretell it.
    """

    def __init__(self, training_queue: TrainingQueue, knowledge: "Callable[[], PredictionState | None]") -> None:
        """`knowledge` returns what is known, None before it is loaded and after it was closed."""
        self._training_queue = training_queue
        self._knowledge = knowledge
        self._on_learned: TrainingCallback = lambda *_: None
        self._guarded = FailingOpen(_log, "a training example failed and is left out;")

    def on_learned(self, listener: TrainingCallback) -> None:
        """Register a callback for each training example."""
        self._on_learned = listener

    def called(self, example: TrainingExample, prediction_input: PredictionInput) -> None:
        """Have a call learned once it is out of the way."""
        pair_update = (lambda: self._learn_gist(example)) if example.contexts else None
        self._training_queue.add(lambda: self._learn(example, prediction_input), pair_update)

    def ended(self, scope: str, calls: tuple[str, ...]) -> None:
        """Have it learned, after its calls, that a session with these calls has ended."""

        def learn() -> None:
            knowledge = self._knowledge()
            scope_model = None if knowledge is None else knowledge.scope_models.known(scope)
            if scope_model is not None:
                with self._guarded:
                    scope_model.predictor.end_session(calls)

        self._training_queue.add(learn)

    def marked(self, context: Context, tool: str, signal: float, *, scope: str, at: float, session: Session) -> None:
        """Have it learned for sure that a tool belongs to a context, or does not."""

        def learn() -> None:
            self._pair(context, tool, signal, scope, at, session)
            self._notify(None, tool, DiscoveryMethod.SEARCHED)

        self._training_queue.add_gist(learn)

    def called_elsewhere(
        self, prediction_input: Callable[[], PredictionInput], tool: str, found: DiscoveryMethod, scope: str
    ) -> None:
        """Learn from a call that another process served; a scope that is not in memory is read later."""

        def learn() -> None:
            knowledge = self._knowledge()
            scope_model = None if knowledge is None else knowledge.scope_models.known(scope)
            if scope_model is not None:
                with self._guarded:
                    scope_model.learn(prediction_input(), tool, SIGNALS[found])

        self._training_queue.add(learn)

    def _learn(self, example: TrainingExample, prediction_input: PredictionInput) -> None:
        knowledge = self._knowledge()
        if knowledge is None:
            return
        with self._guarded:
            known_before = knowledge.with_relevance(prediction_input, example.scope)

            def learn(scope_model: "ScopeModel") -> None:
                scope_model.learn(known_before, example.tool, SIGNALS[example.found])

            knowledge.scope_models.teach(example.scope, example.at, learn)
        self._pair_all(example)
        self._notify(prediction_input, example.tool, example.found)

    def _learn_gist(self, example: TrainingExample) -> None:
        self._pair_all(example)
        self._notify(None, example.tool, example.found)

    def _pair_all(self, example: TrainingExample) -> None:
        for context in example.contexts:
            self._pair(context, example.tool, SIGNALS[example.found], example.scope, example.at, example.session)

    def _pair(self, context: Context, tool: str, signal: float, scope: str, at: float, session: Session) -> None:
        knowledge = self._knowledge()
        if knowledge is None:
            return
        with self._guarded:
            fingerprint = knowledge.index.fingerprint(tool)
            knowledge.learner.paired(
                context, tool, signal, scope=scope, at=at, fingerprint=fingerprint, session=session
            )

    def _notify(self, prediction_input: PredictionInput | None, tool: str, found: DiscoveryMethod) -> None:
        with self._guarded:
            self._on_learned(prediction_input, tool, found)
