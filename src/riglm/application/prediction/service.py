"""Prediction as the rest of riglm sees it: what comes next, what fits a context, and what was learned."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from riglm.application.failing_open import FailingOpen
from riglm.application.owners import ToolOwners
from riglm.application.predicting import Predicting
from riglm.application.prediction.warm_sets import WarmSets
from riglm.application.prediction.worker import Urgency, Worker
from riglm.domain.invocation import Found
from riglm.domain.prediction import Context, Prediction, Situation
from riglm.domain.retrieval.outcome import SearchOutcome
from riglm.domain.retrieval.texts import request_texts
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.domain.tool import Catalogue
from riglm.ports.embedder import EmbedderPort, EmbedderStatus, EmbedderUnavailable

if TYPE_CHECKING:  # numpy comes with it, and is imported on the worker
    from riglm.application.prediction.knowledge import Knowledge, Recollection

LONGEST_CONTEXT: Final = 8_000
"""Characters of a context or query that are read; the rest says little more."""

LearningScope = Literal["principal", "tenant", "instance"]
"""Who learns from whom: each principal for itself, or all who use this riglm together."""

MARKED_SIGNAL: Final = 1.5
"""What a client says of a tool by `mark_tool` counts like a search that found it."""

WEIGHTS: Final = {"high": {"lexical": 0.35, "semantic": 0.65}}
"""How much words and meaning count in a search, by semantic quality; words alone where it is not listed."""

_ADVICE: Final = {
    "high": "Ask in natural language: meaning counts more than words.",
    "low": "Ask with the words that tools use of themselves: meaning is recognised poorly.",
    "none": "Ask with the words that tools use of themselves: meaning is not recognised at all.",
}
_WORDS_ALONE: Final = {"lexical": 1.0, "semantic": 0.0}
_MOST_UNLEARNED: Final = 256
_MOST_WAITING: Final = 64
_PAUSE_SECONDS: Final = 0.01
_LOADING_SECONDS: Final = 5.0
_PREPARING_SECONDS: Final = 3.0
_CLOSING_SECONDS: Final = 0.5
_log: Final = logging.getLogger("riglm.prediction")


class Lesson(NamedTuple):
    """A call that is still to be learned."""

    situation: Situation
    tool: str
    found: Found
    scope: str


class PredictionService(Predicting):
    """Answers on the event loop from what is known there; what takes time is done on the worker.

    Until the worker has loaded what prediction needs, nothing is known, and everything is shown. Calls are learned
    after they were answered, one at a time; what comes faster than that is learned from the store at the next start.
    Nothing here raises because of a model, a predictor or a store.
    """

    def __init__(
        self,
        worker: Worker,
        make_recollection: Callable[[], "Recollection"],
        owners: ToolOwners,
        warm_sets: WarmSets,
        configured: EmbedderStatus,
        *,
        predictor: str = "",
        scope: LearningScope = "principal",
        patience: float = 1.0,
        head_start: float = 0.2,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`make_recollection` runs on the worker, `head_start` seconds after prediction was first thought of.

        `configured` is the status of the embedder until it is loaded, `predictor` the name of the strategy. A client
        waits at most `patience` seconds for its words to be embedded.
        """
        self._worker = worker
        self._make_recollection = make_recollection
        self._owners = owners
        self._warm_sets = warm_sets
        self._configured = configured
        self._predictor = predictor
        self._scope = scope
        self._patience = patience
        self._head_start = head_start
        self._clock = clock
        self._knowledge: Knowledge | None = None
        self._loaded: asyncio.Event | None = None
        self._starting: asyncio.TimerHandle | None = None
        self._recalled = asyncio.Event()
        self._closed = False
        self._waiting: dict[bytes, Catalogue] = {}
        self._lessons: deque[Lesson] = deque()
        self._candidates: tuple[tuple[str, ...], Mapping[str, str]] = ((), {})
        self._guarded = FailingOpen(_log, "prediction failed; what it would have said is left out, and")

    def know(self, catalogue: Catalogue) -> None:
        """Take note of the tools that a client can be shown."""
        self._begin()
        if self._knowledge is not None:
            self._knowledge.index.know(catalogue)
        elif not self._closed and len(self._waiting) < _MOST_WAITING:
            self._waiting[catalogue.raw] = catalogue

    def predict(
        self, session: Session, state: SessionState, names: tuple[str, ...], *, explain: bool = False
    ) -> Prediction | None:
        """What the session calls next among `names`, on request by signal; None while there is nothing to go by."""
        knowledge = self._knowledge
        if knowledge is None or not names or not (knowledge.used or state.calls or state.context):
            return None
        with self._guarded:
            situation = knowledge.with_relevance(self._situation(session, state, names), self._scope_of(session))
            return knowledge.predictor.predict(situation, explain=explain)
        return None

    def context_confidence(self, session: Session, state: SessionState) -> float:
        """How sure the session's context makes us, between 0 and 1."""
        if self._knowledge is None or state.context is None:
            return 0.0
        with self._guarded:
            return self._knowledge.pairs.confidence(state.context, self._scope_of(session))
        return 0.0

    def size(self, prediction: Prediction) -> int:
        """How many of the best tools hold the next one as often as the configured coverage asks for."""
        if self._knowledge is None:
            return len(prediction.scores)
        return self._knowledge.coverage.size(prediction.scores)

    async def prepare(self, session: Session, names: tuple[str, ...], profile: str, most: int) -> None:
        """Have the warm set of the session's principal for this epoch at hand, if anything was learned.

        Only the first list of an epoch waits for what was learned to be loaded.
        """
        now = self._clock()
        principal = self._scope_of(session)
        if self._warm_sets.is_settled(principal, profile, now):
            return
        with self._guarded, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PREPARING_SECONDS):
                found, has_history = await self._on_worker(lambda: self._warm_sets.stored(principal, profile, now))
                if found is None and has_history and await self._wait_loaded():
                    tools = self._warmest(session, names, most)
                    found = await self._on_worker(
                        lambda: self._warm_sets.decide(principal, profile, tools, self._predictor, now)
                    )
                self._warm_sets.settle(principal, profile, now, found)

    def warm_set(self, session: Session, names: tuple[str, ...], profile: str) -> tuple[str, ...] | None:
        """The tools of this epoch's warm set that are among `names`; None while nothing was learned."""
        kept = self._warm_sets.kept(self._scope_of(session), profile, self._clock())
        if kept is None:
            return None
        there = set(names)
        return tuple(tool for tool in kept.tools if tool in there)

    async def set_context(self, session: Session, state: SessionState, text: str) -> None:
        """The session says what it is about; a vector that comes late is added when it comes."""
        self._begin()
        state.context = Context(text=text[:LONGEST_CONTEXT])
        context = await self._embedded(state.context, lambda late: self._replace_context(state, late))
        self._replace_context(state, context)

    async def search(self, session: Session, query: str, limit: int, allowed: Callable[[str], bool]) -> SearchOutcome:
        """The tools that fit a query, among those that are allowed."""
        if await self._wait_loaded() and self._knowledge is not None:
            await self._knowledge.index.read()
            retriever = self._knowledge.index.retriever
            if retriever is not None:
                context = await self._embedded(Context(text=query[:LONGEST_CONTEXT]), lambda _: None)
                return retriever.search(context, limit, scope=self._scope_of(session), allowed=allowed)
        return SearchOutcome(hits=(), near=(), abstained=True)

    def called(self, session: Session, state: SessionState, tool: str, found: Found, names: tuple[str, ...]) -> None:
        """The session called a tool, and `state` does not know yet; it is learned once the call is out of the way."""
        if self._knowledge is None or len(self._lessons) >= _MOST_UNLEARNED:
            return
        situation = self._situation(session, state, names)
        self._lessons.append(Lesson(situation, tool, found, self._scope_of(session)))
        if len(self._lessons) == 1:
            asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._learn_next)

    def marked(self, session: Session, state: SessionState, tool: str, *, relevant: bool) -> None:
        """The client says whether a tool belongs to the session's context."""
        if self._knowledge is None or state.context is None:
            return
        with self._guarded:
            self._knowledge.learner.paired(
                state.context,
                tool,
                MARKED_SIGNAL if relevant else 0.0,
                scope=self._scope_of(session),
                at=self._clock(),
                fingerprint=self._knowledge.index.fingerprint(tool),
            )

    def status(self) -> dict[str, Any]:
        """The embedder's runtime truth, how much is indexed, and how a client does best to ask."""
        knowledge = self._knowledge
        embedder = self._configured if knowledge is None else knowledge.embedder.status()
        tools, embedded = (0, 0) if knowledge is None else knowledge.index.counts()
        return {
            "embeddings": asdict(embedder),
            "tools": {"indexed": tools, "embedded": embedded},
            "learned_pairs": 0 if knowledge is None else len(knowledge.pairs),
            "weights": WEIGHTS.get(embedder.semantic_quality, _WORDS_ALONE),
            "advice": _ADVICE[embedder.semantic_quality],
        }

    async def close(self) -> None:
        """Learn what is left, as far as there is time, and let the model go."""
        until = time.monotonic() + _CLOSING_SECONDS
        while self._lessons and time.monotonic() < until:
            self._learn_one()
        knowledge, self._knowledge, self._closed = self._knowledge, None, True
        if self._starting is not None:
            self._starting.cancel()
        self._worker.stop()
        if knowledge is not None:
            with self._guarded, contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await asyncio.to_thread(knowledge.embedder.__exit__, None, None, None)

    def _begin(self, *, at_once: bool = False) -> None:
        """Load, once, and unless somebody waits for it after the client has had its first answer."""
        if self._loaded is None:
            self._loaded = asyncio.Event()
            self._starting = asyncio.get_running_loop().call_later(self._head_start, self._start_loading)
        if at_once:
            self._start_loading()

    def _start_loading(self) -> None:
        if self._starting is None:
            return
        self._starting.cancel()
        self._starting = None
        loop = asyncio.get_running_loop()
        self._worker.submit(lambda: self._bring_back(loop.call_soon_threadsafe))

    def _bring_back(self, on_loop: Callable[[Callable[[], None]], object]) -> None:
        """Load what there is to know, on the worker; what can be told is used before the model is there."""
        try:
            recollection = self._make_recollection()
            knowledge = recollection.load(self._worker, self._owners, on_loop, self._clock())
            on_loop(lambda: self._take(knowledge))
            self._worker.submit(lambda: self._recall(recollection, knowledge, on_loop), Urgency.LATER)
        except Exception:  # noqa: BLE001  # without prediction everything is shown
            _log.exception("prediction could not be loaded: everything is shown")
            on_loop(lambda: self._take(None))
            on_loop(self._recalled.set)

    def _recall(
        self, recollection: "Recollection", knowledge: "Knowledge", on_loop: Callable[[Callable[[], None]], object]
    ) -> None:
        """Load the model and what was learned with it, on the worker."""
        try:
            pairs = recollection.recall(knowledge)
            on_loop(lambda: knowledge.recalled(pairs))
        except Exception:  # noqa: BLE001  # contexts start cold
            _log.exception("the model could not be loaded: contexts count by their words alone")
        on_loop(self._recalled.set)

    def _take(self, knowledge: "Knowledge | None") -> None:
        if self._loaded is None or self._closed:
            return
        self._knowledge = knowledge
        waiting, self._waiting = self._waiting, {}
        if knowledge is not None:
            for catalogue in waiting.values():
                knowledge.index.know(catalogue)
        self._loaded.set()

    async def _wait_loaded(self) -> bool:
        self._begin(at_once=True)
        if self._loaded is not None and not self._loaded.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._loaded.wait(), _LOADING_SECONDS)
        return self._knowledge is not None

    async def _on_worker(self, job: Callable[[], Any]) -> Any:
        return await asyncio.wrap_future(self._worker.submit(job, Urgency.AWAITED))

    async def _embedded(self, context: Context, late: Callable[[Context], None]) -> Context:
        """The context with its vector, or without when that takes longer than a client can wait for it."""
        if not await self._wait_loaded() or self._knowledge is None:
            return context
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._recalled.wait(), _LOADING_SECONDS)
        knowledge = self._knowledge
        future = self._worker.submit(lambda: _with_vector(knowledge.opened_embedder(), context), Urgency.AWAITED)
        waiting = asyncio.wrap_future(future)
        done, _ = await asyncio.wait({waiting}, timeout=self._patience)
        if not done:
            waiting.add_done_callback(lambda task: late(task.result()) if _succeeded(task) else None)
            return context
        with self._guarded:
            found = waiting.result()
            if found.model != self._knowledge.index.model:
                self._knowledge.index.model_changed()
            return found
        return context

    def _replace_context(self, state: SessionState, context: Context) -> None:
        if state.context is not None and state.context.text == context.text:
            state.context = context

    def _situation(self, session: Session, state: SessionState, names: tuple[str, ...]) -> Situation:
        """What is known of the session now, but for how well tools fit its context."""
        if self._candidates[0] is not names:
            self._candidates = (names, {name: self._owners.of(name)[0] for name in names})
        return Situation(
            candidates=names,
            calls=tuple(state.calls),
            servers=self._candidates[1],
            context=state.context,
            principal=session.principal,
            client=session.client.name,
            time=self._clock(),
        )

    def _warmest(self, session: Session, names: tuple[str, ...], most: int) -> tuple[str, ...]:
        """The tools that a session that knows nothing yet is likeliest to need, among those that were ever used."""
        prediction = self.predict(session, SessionState(), names)
        if prediction is None or self._knowledge is None:
            return ()
        used = self._knowledge.used
        order = sorted(range(len(names)), key=lambda index: (-float(prediction.scores[index]), index))
        best = [names[index] for index in order if names[index] in used]
        return tuple(best[: min(most, max(1, self.size(prediction)))])

    def _learn_next(self) -> None:
        self._learn_one()
        if self._lessons:
            asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._learn_next)

    def _learn_one(self) -> None:
        knowledge = self._knowledge
        if not self._lessons:
            return
        situation, tool, found, scope = self._lessons.popleft()
        if knowledge is None:
            return
        with self._guarded:
            situation = knowledge.with_relevance(situation, scope)
            expected = knowledge.predictor.predict(situation)
            if tool in situation.candidates:
                knowledge.coverage.observe(expected.scores, situation.candidates.index(tool))
            knowledge.learner.called(situation, tool, found, scope=scope, fingerprint=knowledge.index.fingerprint(tool))
            knowledge.used.add(tool)

    def _scope_of(self, session: Session) -> str:
        return session.principal if self._scope == "principal" else ""


def _with_vector(embedder: EmbedderPort, context: Context) -> Context:
    try:
        vector = embedder.embed(request_texts(context.text))
    except EmbedderUnavailable as error:
        _log.info("a context counts by its words alone: %s", error)
        return context
    return Context(text=context.text, vector=vector, model=embedder.model)


def _succeeded(task: asyncio.Future[Context]) -> bool:
    return not task.cancelled() and task.exception() is None
