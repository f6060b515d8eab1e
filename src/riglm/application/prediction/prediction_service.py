"""Prediction as the rest of riglm sees it, the queue of its updates, and what it shares with other processes."""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from riglm.application.failing_open import FailingOpen
from riglm.application.owners import ToolOwners
from riglm.application.prediction.loading import Loading
from riglm.application.prediction.prediction_settings import PredictionSettings
from riglm.application.session_sharing.signing import Broadcast
from riglm.application.tool_lists.selection import NullPrediction
from riglm.application.worker import Urgency, Worker
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.learning import SIGNALS, learning_scope
from riglm.domain.prediction import Context, Prediction, PredictionInput, ToolSearchResult
from riglm.domain.retrieval.words import request_texts
from riglm.domain.session import Session
from riglm.domain.session_state import MAX_QUERY_LENGTH, SessionState
from riglm.domain.tool import ToolCatalog
from riglm.ports.embedder import EmbedderPort, EmbedderStatus, EmbedderUnavailableError
from riglm.ports.telemetry import MeterPort

if TYPE_CHECKING:
    from riglm.application.prediction.prediction_state import OnLoop, PredictionState
    from riglm.domain.retrieval.retriever import Retriever


MAX_UPDATES: Final = 2_000
"""Maximum number of waiting updates."""

_PAUSE_SECONDS: Final = 0.01
_SHARE: Final = 0.1


class TrainingQueue:
    """A queue that is worked off on the event loop, one update at a time, in at most a tenth of its time.

    Until `work_off` no update is made: what calls teach is added to what earlier runs taught, which is loaded first. Of
    too many updates the oldest are made at once, or left out before `work_off`. Updates must not raise.
    """

    def __init__(self) -> None:
        self._updates: asyncio.Queue[Callable[[], None]] = asyncio.Queue()
        self._has_begun = False

    def add(self, update: Callable[[], None]) -> None:
        """Queue an update."""
        self._updates.put_nowait(update)
        if self._updates.qsize() > MAX_UPDATES:
            oldest = self._updates.get_nowait()
            if self._has_begun:
                oldest()

    async def work_off(self) -> None:
        """Make the updates that wait and that are still to come, until it is canceled."""
        self._has_begun = True
        while True:
            update, began = await self._updates.get(), time.perf_counter()
            update()
            await asyncio.sleep(max(_PAUSE_SECONDS, (time.perf_counter() - began) / _SHARE))

    def catch_up(self) -> None:
        """Make all waiting updates now, if `work_off` has begun: no call is delayed by it."""
        while self._has_begun and not self._updates.empty():
            self._updates.get_nowait()()

    def close(self) -> None:
        """Make the remaining updates, if `work_off` has begun."""
        self.catch_up()
        if not self._updates.empty():
            _log.warning("calls taught nothing of their contexts: they came before prediction was loaded")


MAX_CONTEXT_LENGTH: Final = 8_000
"""Characters of a context or query that are read; the rest says little more."""

TIMEOUT: Final = 10.0
"""Seconds for which a client waits for its words, and the tools they are compared with, to be embedded."""

MARKED_SIGNAL: Final = 1.5
"""Feedback by `mark_tool` counts like a search that found the tool."""

MAX_AWAITED: Final = 1_000
"""Tools without a vector that a search waits for: embedding them takes twenty seconds."""

_ADVICE: Final = {
    "high": "Ask in natural language: meaning counts more than words.",
    "low": "Ask with the words that tools use of themselves: meaning is recognised poorly.",
    "none": "Ask with the words that tools use of themselves: meaning is not recognised at all.",
}
_ADVICE_MEANWHILE: Final = "Ask in natural language: a search waits until the meaning of all tools is known."
_WORDS_ALONE: Final = {"lexical": 1.0, "semantic": 0.0}
_MAX_ASKED: Final = 256
_MODEL_SECONDS: Final = 2.0  # without a model, only companions and the order of equal hits are missing
_ACQUAINT_SECONDS: Final = 4.0  # the control API answers within five
_log: Final = logging.getLogger("riglm.prediction")


class PredictionService(NullPrediction):
    """Answers on the event loop from what is known there; what takes time is done on other threads.

    Nothing here raises because of a model, a predictor or a store.
    """

    def __init__(
        self,
        worker: Worker,
        make_state: "Callable[[PredictionSettings, OnLoop], PredictionState]",
        owners: ToolOwners,
        configured: EmbedderStatus,
        settings: PredictionSettings,
        *,
        timeout_seconds: float = TIMEOUT,
        meter: MeterPort | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`make_state` runs on the worker, when prediction is first needed.

        `configured` is the status of the embedder until it is loaded. A client waits at most `timeout_seconds` seconds
        for its words to be embedded.
        """
        self._worker = worker
        self._owners = owners
        self._configured = configured
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._meter = meter
        self._queue = TrainingQueue()
        self._loading = Loading(worker, make_state, settings, self._queue.work_off)
        self._asked: OrderedDict[str, Context] = OrderedDict()
        self._relearning: asyncio.Task[None] | None = None
        self._embedding: set[asyncio.Task[Context]] = set()
        self._on_paired: Callable[[], None] = lambda: None
        self._on_ended: Callable[[str], None] = lambda _: None
        self._guarded = FailingOpen(_log, "prediction failed; what it would have said is left out, and")

    def know(self, catalog: ToolCatalog) -> None:
        self._loading.know(catalog)

    def begin(self) -> None:
        """Load now what the first search or context would wait for."""
        self._loading.begin()

    def predict(
        self, session: Session, state: SessionState, names: tuple[str, ...], *, explain: bool = False
    ) -> Prediction | None:
        loaded, scope = self._loading.state, self._scope(session)
        if loaded is None or not names:
            return None
        model = loaded.scope_models.of(scope)
        if model is None or not (model.sessions or state.calls or state.context):
            return None
        started = time.perf_counter()
        with self._guarded:
            prediction_input = self._prediction_input(session, state, names, loaded.index.retriever)
            prediction = model.predict(prediction_input, explain=explain)
            if self._meter is not None:
                self._meter.predicted(time.perf_counter() - started)
            return replace(prediction, evidence=prediction.evidence + bool(state.calls))
        return None

    async def acquaint(self, session: Session) -> None:
        await self.caught_up(session, _ACQUAINT_SECONDS)

    async def caught_up(self, session: Session, seconds: float) -> bool:
        """Wait for the model, what the session's scope taught, the vectors of all listed tools, and queued updates.

        Return True if `seconds` were enough. A prediction that could not be loaded is not waited for.
        """
        self._loading.begin()
        try:
            async with asyncio.timeout(seconds):
                await self._loading.restored.wait()
                if self._loading.state is not None:
                    await self._loading.state.index.embedded()
                    await self._loading.state.scope_models.up_to_date(self._scope(session))
        except TimeoutError:
            return False
        self.catch_up()
        return True

    def catch_up(self) -> None:
        """Learn what calls taught until now, if what was learned before them is loaded: no call is in the way."""
        self._queue.catch_up()

    def context_confidence(self, session: Session, state: SessionState) -> float:
        loaded = self._loading.state
        if loaded is None or state.context is None:
            return 0.0
        with self._guarded:
            return loaded.index.confidence(state.context, self._scope(session))
        return 0.0

    @property
    def is_ready(self) -> bool:
        loaded = self._loading.state
        if loaded is None:
            return self._loading.has_failed
        has_meaning = loaded.embedder.status().semantic_quality == "high"
        return loaded.is_open and (loaded.index.is_complete or not has_meaning)

    async def set_context(self, session: Session, state: SessionState, text: str) -> None:
        said = state.context = Context(text=text[:MAX_CONTEXT_LENGTH])

        def take(embedded: Context) -> None:
            if state.context is said:
                state.context = embedded

        await self._embedded(session, said, take)  # the list is chosen once for a context: by all that there is to know

    async def search(
        self, session: Session, query: str, limit: int, allowed: Callable[[str], bool]
    ) -> ToolSearchResult:
        """The tools that fit a query, among those that are allowed; the best by words while meanings are unknown.

        Only without a model may the search find nothing: it cannot see that other words mean the same.
        """
        context = await self._embedded(session, Context(text=query[:MAX_CONTEXT_LENGTH]), self._remember)
        retriever = None if self._loading.state is None else self._loading.state.index.retriever
        if retriever is not None:
            is_fallback = self.is_ready and self.embedder_status().semantic_quality != "high"
            with self._guarded:
                return retriever.search(
                    context, limit, scope=self._scope(session), allowed=allowed, may_abstain=is_fallback
                )
        return ToolSearchResult(hits=(), near=(), abstained=True)

    def called(self, session: Session, state: SessionState, tool: str, found: DiscoveryMethod) -> None:
        """Learn that a tool was called in the session's context and, if a search found it, for the words of that.

        What calls teach of each other is learned from the records.
        """
        query = self._asked.get(state.queries.get(tool, "")) if found is DiscoveryMethod.SEARCHED else None
        if state.context is None and query is None:
            return
        for context in {each.text: each for each in (state.context, query) if each is not None}.values():
            self._learn_pair(session, context, tool, SIGNALS[found])

    def ended(self, session: Session, state: SessionState) -> None:
        if state.calls and self._loading.state is not None:
            self.ended_elsewhere(scope := self._scope(session))
            self._on_ended(scope)

    def ended_elsewhere(self, scope: str) -> None:
        """Note that a session of a scope, which another process served, has ended."""
        if self._loading.state is not None:
            self._loading.state.scope_models.ended(scope)

    def marked(self, session: Session, state: SessionState, tool: str, *, relevant: bool) -> None:
        if state.context is not None:
            self._learn_pair(session, state.context, tool, MARKED_SIGNAL if relevant else 0.0)

    def _learn_pair(self, session: Session, context: Context, tool: str, signal: float) -> None:
        scope, at = self._scope(session), self._clock()

        def learn() -> None:
            loaded = self._loading.state
            if loaded is not None:
                with self._guarded:
                    said = loaded.index.fingerprint(tool)
                    loaded.learner.learn(context, tool, signal, scope=scope, at=at, fingerprint=said, session=session)
                    self._on_paired()

        if self._loading.has_begun:
            self._queue.add(learn)

    def embedder_status(self) -> EmbedderStatus:
        """The embedder's runtime truth."""
        loaded = self._loading.state
        if loaded is not None:
            return loaded.embedder.status()
        if self._loading.has_failed:
            return replace(self._configured, status="unavailable")
        return replace(self._configured, status="loading" if self._loading.has_begun else "not_loaded")

    def status(self) -> dict[str, Any]:
        loaded, embedder = self._loading.state, self.embedder_status()
        tools, embedded = (0, 0) if loaded is None else loaded.index.counts()
        is_waiting = embedder.status in {"not_loaded", "loading"} or (
            embedded < tools and embedder.semantic_quality == "high"
        )
        return {
            "embeddings": asdict(embedder),
            "tools": {"indexed": tools, "embedded": embedded},
            "learned_pairs": 0 if loaded is None else len(loaded.learner.pairs),
            "weights": _WORDS_ALONE if loaded is None else asdict(loaded.index.weights),
            "advice": _ADVICE_MEANWHILE if is_waiting else _ADVICE[embedder.semantic_quality],
        }

    def relearn(self) -> None:
        """Learn again from what the store holds now, in the background; deleted records no longer count."""
        self._asked.clear()
        self._relearning = asyncio.get_running_loop().create_task(self._loading.relearn())

    def follow(self, settings: PredictionSettings, *, reload: bool) -> None:
        """Apply new settings; with `reload`, use a new predictor as soon as it has learned from the records."""
        self._loading.follow(settings, reload=reload)

    def on_reload(self, listener: Callable[[], None]) -> None:
        """Register a callback for a change of the predictor."""
        self._loading.on_reload = listener

    @property
    def state(self) -> "PredictionState | None":
        """What was learned, once it is loaded."""
        return self._loading.state

    def on_learned(self, on_paired: Callable[[], None], on_ended: Callable[[str], None]) -> None:
        """Register callbacks for learned pairs and for the ends of sessions of a scope."""
        self._on_paired, self._on_ended = on_paired, on_ended

    async def close(self) -> None:
        """Learn what is left, and close the model."""
        self._queue.close()
        with self._guarded:
            await self._loading.close()

    async def _embedded(self, session: Session, context: Context, take: Callable[[Context], None]) -> Context:
        """Return the context with its vector, once all tools have theirs and the session's scope has a model.

        The model is waited for two seconds. After `timeout_seconds` the context is returned as it is. `take` is called
        with it as soon as it has its vector.
        """
        until = asyncio.get_running_loop().time() + self._timeout_seconds
        self._loading.begin()
        task = asyncio.create_task(self._embed(context, take))
        self._embedding.add(task)
        task.add_done_callback(self._embedding.discard)
        loaded = await self._loading.loaded()
        self.catch_up()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await asyncio.wait({task})
                if loaded is not None:
                    await loaded.scope_models.ready(self._scope(session), _MODEL_SECONDS)
                    tools, embedded = loaded.index.counts()
                    if tools - embedded <= MAX_AWAITED:
                        await loaded.index.embedded()
        return task.result() if task.done() and not task.cancelled() else context

    async def _embed(self, context: Context, take: Callable[[Context], None]) -> Context:
        with self._guarded:
            await self._loading.opened.wait()
            loaded = self._loading.state
            if loaded is not None:
                embedded = await self._worker.run(lambda: _with_vector(loaded.embedder, context), Urgency.AWAITED)
                if embedded.model:
                    loaded.index.answered_by(embedded.model)
                take(embedded)
                return embedded
        return context

    def _remember(self, asked: Context) -> None:
        """Keep the words of a search, so that they can be learned when a tool that it found is called."""
        whole = None if asked.vector is None else asked.vector[0]
        self._asked[asked.text[:MAX_QUERY_LENGTH]] = replace(asked, vector=whole)
        self._asked.move_to_end(asked.text[:MAX_QUERY_LENGTH])
        if len(self._asked) > _MAX_ASKED:
            self._asked.popitem(last=False)

    def _prediction_input(
        self, session: Session, state: SessionState, names: tuple[str, ...], retriever: "Retriever | None"
    ) -> PredictionInput:
        """What is known of the session now."""
        context, scope, relevance = state.context, self._scope(session), None
        if context is not None and retriever is not None:
            relevance = retriever.relevance(context, names, scope=scope)
        return PredictionInput(
            candidates=names,
            calls=tuple(state.calls),
            servers={name: self._owners.of(name)[0] for name in names},
            context=context,
            relevance=relevance,
            principal=session.principal,
            profile=session.profile,
            client=session.client.name,
            project=session.project,
            time=self._clock(),
        )

    def _scope(self, session: Session) -> str:
        return learning_scope(session.principal if self._loading.settings.by_principal else "", session.profile)


def _with_vector(embedder: EmbedderPort, context: Context) -> Context:
    try:
        vector = embedder.embed(request_texts(context.text))
    except EmbedderUnavailableError as error:
        _log.info("a context counts by its words alone: %s", error)
        return context
    return Context(text=context.text, vector=vector, model=embedder.model)


PAIRS_CHANNEL: Final = "pairs"
"""The kind of broadcast that reports new learned pairs."""

ENDED_CHANNEL: Final = "session-ended"
"""The kind of broadcast that reports the learning scope of a session that has ended."""

_DELAY_SECONDS: Final = 1.0
_ATTEMPTS: Final = 3  # a store may take a while to hold what was learned


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
                newest = await self._worker.run(state.stored_pairs, Urgency.LATER)
                if state.learner.pairs.catch_up(newest):
                    return

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
