"""Prediction as the rest of riglm sees it: what comes next, what fits a context, and what was learned."""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from riglm.application.failing_open import FailingOpen
from riglm.application.owners import ToolOwners
from riglm.application.prediction.loading import Loading
from riglm.application.prediction.prediction_settings import LearningScope, PredictionSettings
from riglm.application.prediction.training import Trainer, TrainingCallback, TrainingExample
from riglm.application.prediction.training_queue import TrainingQueue
from riglm.application.tool_lists.predictor_interface import NullPrediction
from riglm.application.worker import Urgency, Worker
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.learning import learning_scope
from riglm.domain.prediction import Context, Prediction, PredictionInput, ToolSearchResult
from riglm.domain.retrieval.words import request_texts
from riglm.domain.session import Session
from riglm.domain.session_state import MAX_QUERY_LENGTH, SessionState
from riglm.domain.tool import ToolCatalog
from riglm.ports.embedder import EmbedderPort, EmbedderStatus, EmbedderUnavailableError
from riglm.ports.telemetry import MeterPort

if TYPE_CHECKING:  # numpy comes with it, and is imported on the worker
    from riglm.application.prediction.prediction_state import PredictionState, PredictionStateLoader

MAX_CONTEXT_LENGTH: Final = 8_000
"""Characters of a context or query that are read; the rest says little more."""

TIMEOUT: Final = 10.0
"""Seconds for which a client waits for its words, and the tools they are compared with, to be embedded."""

MARKED_SIGNAL: Final = 1.5
"""Feedback by `mark_tool` counts like a search that found the tool."""

_ADVICE: Final = {
    "high": "Ask in natural language: meaning counts more than words.",
    "low": "Ask with the words that tools use of themselves: meaning is recognised poorly.",
    "none": "Ask with the words that tools use of themselves: meaning is not recognised at all.",
}
_ADVICE_MEANWHILE: Final = "Ask in natural language: a search waits until the meaning of all tools is known."
_WORDS_ALONE: Final = {"lexical": 1.0, "semantic": 0.0}
_MAX_ASKED: Final = 256
_CLOSING_SECONDS: Final = 0.5
_ACQUAINT_SECONDS: Final = 4.0  # the control API answers within five
_log: Final = logging.getLogger("riglm.prediction")


class PredictionService(NullPrediction):
    """Answers on the event loop from what is known there; what takes time is done on the worker.

    Nothing here raises because of a model, a predictor or a store.
    """

    def __init__(
        self,
        worker: Worker,
        make_recollection: Callable[[], "PredictionStateLoader"],
        owners: ToolOwners,
        configured: EmbedderStatus,
        *,
        scope: LearningScope = "principal",
        timeout_seconds: float = TIMEOUT,
        meter: MeterPort | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`make_recollection` runs on the worker, when prediction is first needed.

        `configured` is the status of the embedder until it is loaded. A client
        waits at most `timeout_seconds` seconds for its words to be embedded.
        """
        self._worker = worker
        self._owners = owners
        self._configured = configured
        self._by_principal = scope == "principal"
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._meter = meter
        self._training_queue = TrainingQueue()
        self._loading = Loading(worker, make_recollection, owners, clock=clock, on_recalled=self._training_queue.begin)
        self._asked: OrderedDict[str, Context] = OrderedDict()
        self._candidates: tuple[tuple[str, ...], Mapping[str, str]] = ((), {})
        self._teaching = Trainer(self._training_queue, lambda: self._loading.knowledge)
        self._guarded = FailingOpen(_log, "prediction failed; what it would have said is left out, and")

    def know(self, catalog: ToolCatalog) -> None:
        self._loading.know(catalog)

    def begin(self) -> None:
        """Load now what the first search or context would wait for."""
        self._loading.begin()

    def predict(
        self, session: Session, state: SessionState, names: tuple[str, ...], *, explain: bool = False
    ) -> Prediction | None:
        knowledge = self._loading.knowledge
        if knowledge is None or not names:
            return None
        scope_model = knowledge.scope_models.of(self._scope_of(session))
        if not (scope_model.used or state.calls or state.context):
            return None
        started = time.perf_counter()
        with self._guarded:
            prediction_input = self._prediction_input(session, state, names)
            prediction_input = knowledge.with_relevance(prediction_input, self._scope_of(session))
            prediction = scope_model.predictor.predict(prediction_input, explain=explain)
            if self._meter is not None:
                self._meter.predicted(time.perf_counter() - started)
            return prediction
        return None

    async def acquaint(self, session: Session) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ACQUAINT_SECONDS):
                knowledge = await self._loading.recalled()
                if knowledge is not None:
                    with self._guarded:
                        await knowledge.scope_models.ready(self._scope_of(session), self._timeout_seconds)

    async def caught_up(self, session: Session, seconds: float) -> bool:
        """Wait for the model and for all queued updates; return True if `seconds` were enough.

        A prediction that could not be loaded is not waited for.
        """
        is_at_hand = await self._loading.caught_up(self._scope_of(session), seconds)
        self.catch_up()
        return is_at_hand

    def catch_up(self) -> None:
        """Learn what calls taught until now, if what was learned before them is loaded: no call is in the way."""
        self._training_queue.catch_up()

    def context_confidence(self, session: Session, state: SessionState) -> float:
        knowledge = self._loading.knowledge
        if knowledge is None or state.context is None:
            return 0.0
        with self._guarded:
            return knowledge.index.confidence(state.context, self._scope_of(session))
        return 0.0

    @property
    def is_ready(self) -> bool:
        knowledge = self._loading.knowledge
        if knowledge is None:
            return self._loading.has_failed
        return knowledge.has_no_model or (knowledge.is_open and knowledge.index.is_complete)

    async def set_context(self, session: Session, state: SessionState, text: str) -> None:
        said = state.context = Context(text=text[:MAX_CONTEXT_LENGTH])

        def take(embedded: Context) -> None:
            if state.context is said:
                state.context = embedded

        until = asyncio.get_running_loop().time() + self._timeout_seconds
        knowledge = await self._loading.recalled()
        self.catch_up()
        if knowledge is not None:  # the list is chosen once for a context: by all that there is to know
            replayed = knowledge.scope_models.ready(self._scope_of(session), self._timeout_seconds)
            embedded, _ = await asyncio.gather(self._embedded(knowledge, said, take, until), replayed)
            take(embedded)

    async def search(
        self, session: Session, query: str, limit: int, allowed: Callable[[str], bool]
    ) -> ToolSearchResult:
        """The tools that fit a query, among those that are allowed; the best by words while meanings are unknown.

        Only without a model may the search find nothing: it cannot see that other words mean the same.
        """
        until = asyncio.get_running_loop().time() + self._timeout_seconds
        knowledge = await self._loading.recalled()
        if knowledge is not None:
            asked = Context(text=query[:MAX_CONTEXT_LENGTH])
            replayed = knowledge.scope_models.ready(self._scope_of(session), self._timeout_seconds)
            context, _ = await asyncio.gather(self._embedded(knowledge, asked, self._remember, until), replayed)
            self._remember(context)
            retriever = knowledge.index.retriever
            if retriever is not None:
                is_fallback = self.is_ready and self.embedder_status().semantic_quality != "high"
                with self._guarded:
                    return retriever.search(
                        context, limit, scope=self._scope_of(session), allowed=allowed, may_abstain=is_fallback
                    )
        return ToolSearchResult(hits=(), near=(), abstained=True)

    def called(
        self, session: Session, state: SessionState, tool: str, found: DiscoveryMethod, names: tuple[str, ...]
    ) -> None:
        """The session called a tool, and `state` does not know yet; it is learned once the call is out of the way.

        A tool that a search found is learned for the words of the search as well.
        """
        if not self._loading.has_begun:
            return  # recorded, and replayed when prediction is loaded
        prediction_input = self._prediction_input(session, state, names)
        query = self._asked.get(state.queries.get(tool, "")) if found is DiscoveryMethod.SEARCHED else None
        contexts = {context.text: context for context in (state.context, query) if context is not None}
        example = TrainingExample(
            contexts=tuple(contexts.values()),
            tool=tool,
            found=found,
            scope=self._scope_of(session),
            at=prediction_input.time,
            session=session,
        )
        self._teaching.called(example, prediction_input)

    def ended(self, session: Session, state: SessionState) -> None:
        if state.calls and self._loading.has_begun:
            self._teaching.ended(self._scope_of(session), tuple(state.calls))

    def marked(self, session: Session, state: SessionState, tool: str, *, relevant: bool) -> None:
        if state.context is None:
            return
        signal = MARKED_SIGNAL if relevant else 0.0
        scope, now = self._scope_of(session), self._clock()
        self._teaching.marked(state.context, tool, signal, scope=scope, at=now, session=session)

    def embedder_status(self) -> EmbedderStatus:
        """The embedder's runtime truth."""
        knowledge = self._loading.knowledge
        if knowledge is not None:
            return knowledge.embedder.status()
        if self._loading.has_failed:
            return replace(self._configured, status="unavailable")
        return replace(self._configured, status="loading" if self._loading.has_begun else "not_loaded")

    def status(self) -> dict[str, Any]:
        knowledge, embedder = self._loading.knowledge, self.embedder_status()
        tools, embedded = (0, 0) if knowledge is None else knowledge.index.counts()
        is_waiting = embedder.status in {"not_loaded", "loading"} or (
            embedded < tools and embedder.semantic_quality == "high"
        )
        return {
            "embeddings": asdict(embedder),
            "tools": {"indexed": tools, "embedded": embedded},
            "learned_pairs": 0 if knowledge is None else len(knowledge.pairs),
            "weights": _WORDS_ALONE if knowledge is None else asdict(knowledge.index.weights),
            "advice": _ADVICE_MEANWHILE if is_waiting else _ADVICE[embedder.semantic_quality],
        }

    def relearn(self) -> None:
        """Learn again from what the store holds now, in the background; deleted records no longer count."""
        self._asked.clear()
        self._loading.relearn()

    def follow(self, plan: PredictionSettings, *, reload: bool) -> None:
        """Apply new settings; with `reload`, use a new predictor as soon as it has learned from the records."""
        parts = plan.by_principal != self._by_principal
        self._by_principal = plan.by_principal
        self._loading.follow(plan, reload=reload or parts, forget=parts)

    def on_reload(self, listener: Callable[[], None]) -> None:
        """Register a callback for a change of the predictor."""
        self._loading.on_reload(listener)

    @property
    def knowledge(self) -> "PredictionState | None":
        """What was learned, once it is loaded."""
        return self._loading.knowledge

    def on_learned(self, listener: TrainingCallback) -> None:
        """Register a callback for the training example of each call."""
        self._teaching.on_learned(listener)

    def learn_along(self, prediction_input: PredictionInput, tool: str, found: DiscoveryMethod) -> None:
        """A call was made in another process, which keeps what it taught of contexts; candidates are filled in here."""

        def here() -> PredictionInput:
            names, servers = self._candidates
            return replace(
                prediction_input, candidates=names or tuple({*prediction_input.calls, tool}), servers=servers
            )

        self._teaching.called_elsewhere(
            here, tool, found, self._scope(prediction_input.principal, prediction_input.profile)
        )

    async def close(self) -> None:
        """Learn what is left while there is time, and close the model."""
        self._training_queue.finish(_CLOSING_SECONDS)
        with self._guarded:
            await self._loading.close()

    async def _embedded(
        self, knowledge: "PredictionState", context: Context, late: Callable[[Context], None], until: float
    ) -> Context:
        """Return the context with its vector once all tools have theirs, or `until` then what there is."""

        def answered(waiting: asyncio.Future[Context]) -> Context:
            embedded = waiting.result()
            if embedded.model:
                knowledge.index.answered_by(embedded.model)
            return embedded

        def came_late(waiting: asyncio.Future[Context]) -> None:
            if not waiting.cancelled():
                with self._guarded:
                    late(answered(waiting))

        waiting = asyncio.wrap_future(
            self._worker.submit(lambda: _with_vector(knowledge.opened_embedder(), context), Urgency.AWAITED)
        )
        left = until - asyncio.get_running_loop().time()
        done, _ = await asyncio.wait({waiting}, timeout=max(0.0, left))
        if not done:
            waiting.add_done_callback(came_late)
        elif not waiting.cancelled():
            with self._guarded:
                context = answered(waiting)
        if knowledge.index.is_nearly_complete:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await knowledge.index.embedded()
        return context

    def _remember(self, asked: Context) -> None:
        """Keep the words of a search, so that they can be learned when a tool that it found is called."""
        whole = None if asked.vector is None else asked.vector[0]
        self._asked[asked.text[:MAX_QUERY_LENGTH]] = replace(asked, vector=whole)
        self._asked.move_to_end(asked.text[:MAX_QUERY_LENGTH])
        if len(self._asked) > _MAX_ASKED:
            self._asked.popitem(last=False)

    def _prediction_input(self, session: Session, state: SessionState, names: tuple[str, ...]) -> PredictionInput:
        """What is known of the session now, but for how well tools fit its context."""
        if self._candidates[0] is not names:
            self._candidates = (names, {name: self._owners.of(name)[0] for name in names})
        return PredictionInput(
            candidates=names,
            calls=tuple(state.calls),
            servers=self._candidates[1],
            context=state.context,
            principal=session.principal,
            profile=session.profile,
            client=session.client.name,
            project=session.project,
            time=self._clock(),
        )

    def _scope_of(self, session: Session) -> str:
        return self._scope(session.principal, session.profile)

    def _scope(self, principal: str, profile: str) -> str:
        return learning_scope(principal if self._by_principal else "", profile)


def _with_vector(embedder: EmbedderPort, context: Context) -> Context:
    try:
        vector = embedder.embed(request_texts(context.text))
    except EmbedderUnavailableError as error:
        _log.info("a context counts by its words alone: %s", error)
        return context
    return Context(text=context.text, vector=vector, model=embedder.model)
