"""All that prediction works with, loaded on the worker."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from riglm.application.owners import ToolOwners
from riglm.application.prediction.experience import Experience, Experiences, OnLoop
from riglm.application.prediction.learner import Learner
from riglm.application.prediction.plan import Plan
from riglm.application.prediction.tool_index import ToolIndex
from riglm.application.worker import Worker
from riglm.domain.coverage import CoverageCalibrator
from riglm.domain.learning import LearnedPair
from riglm.domain.prediction import Situation
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.ports.analytics import AnalyticsPort, PairsForgotten, RecordedSession
from riglm.ports.embedder import EmbedderPort
from riglm.ports.predictor import PredictorPort

_REPLAYED_SESSIONS: Final = 300
_log: Final = logging.getLogger("riglm.prediction")


@dataclass(slots=True, kw_only=True)
class Knowledge:
    """What was learned, and what learns. Read and changed on the event loop once it is loaded."""

    experiences: Experiences
    pairs: LearnedPairs
    learner: Learner
    index: ToolIndex
    embedder: EmbedderPort

    plan: Plan | None = None
    """What it was made by, None while that is what riglm was started with."""

    is_open: bool = False
    """Whether the model was loaded."""

    is_closed: bool = False
    """Whether the model was let go."""

    def opened_embedder(self) -> EmbedderPort:
        """The embedder, opened by its first use; blocks, and is called by one thread only."""
        if not self.is_open:
            self.is_open = True
            self.embedder.__enter__()
            if self.is_closed:  # it was closed while it was still opening
                self.close()
        return self.embedder

    def close(self) -> None:
        """Let the model go, on any thread."""
        self.is_closed = True
        if self.is_open:
            self.embedder.__exit__(None, None, None)

    def recalled(self, pairs: LearnedPairs) -> None:
        """Go on with the pairs of earlier runs."""
        self.pairs = pairs
        self.learner.pairs = pairs
        self.index.use(pairs)

    def relearned(self, pairs: LearnedPairs) -> None:
        """Go on with these pairs, and learn all else anew."""
        self.experiences.reread()
        self.recalled(pairs)

    def follow(self, plan: Plan, on_anew: Callable[[], None] | None, *, forget: bool = False) -> None:
        """Go by another plan; with `on_anew` all experience is made anew by it, and told when it is.

        With `forget`, what was learned together until now serves nobody meanwhile.
        """
        self.plan = plan
        self.learner.most_pairs = plan.most_pairs
        self.experiences.aim(plan.coverage, plan.least, plan.most)
        if on_anew is not None:
            self.experiences.anew(on_anew, forget=forget)

    def with_relevance(self, situation: Situation, scope: str) -> Situation:
        """The situation with how well each candidate fits its context, if it has one."""
        retriever = self.index.retriever
        if situation.context is None or retriever is None:
            return situation
        relevance = retriever.relevance(situation.context, situation.candidates, scope=scope)
        return replace(situation, relevance=relevance)


class Recollection:
    """What earlier runs left to know, brought back on the worker: first what the predictor learned, then the pairs.

    A store that is away means a cold start, and is logged.
    """

    def __init__(
        self,
        *,
        open_store: Callable[[], AnalyticsPort],
        make_predictor: Callable[[], PredictorPort],
        make_embedder: Callable[[], EmbedderPort],
        make_coverage: Callable[[], CoverageCalibrator],
        put: Callable[[LearnedPair | PairsForgotten, int], None],
        most_pairs: int,
        key: bytes = b"",
        names: Callable[[str], str] = str,
        by_principal: bool,
    ) -> None:
        """`put` hands a record to the recorder; of learned pairs at most `most_pairs` are kept, hashed under `key`.

        `names` gives the keyed hash of the name of a client, by which a pair knows who taught it.
        `by_principal` says that scopes are principals; else there is one, the empty one, for the calls of all.
        """
        self._open_store = open_store
        self._make_predictor = make_predictor
        self._make_embedder = make_embedder
        self._make_coverage = make_coverage
        self._put = put
        self._most_pairs = most_pairs
        self._key = key
        self._names = names
        self._by_principal = by_principal
        self._plan: Plan | None = None

    def follow(self, plan: Plan) -> None:
        """Make from now on what another plan asks for; on any thread."""
        self._plan = plan
        self._make_predictor = plan.make_predictor
        self._most_pairs = plan.most_pairs
        self._by_principal = plan.by_principal

    def load(self, worker: Worker, owners: ToolOwners, on_loop: OnLoop, clock: Callable[[], float]) -> Knowledge:
        """What the latest sessions of the empty scope taught; no model is loaded and no pair known yet.

        The empty scope is that of all, or of whoever uses riglm on this machine.
        """
        plan = self._plan
        embedder, pairs = self._make_embedder(), LearnedPairs(self._key)
        experiences = Experiences(self._cold, self._recorded, lambda tool: owners.of(tool)[0], worker, on_loop, clock)
        experiences.replay("")
        learner = Learner(pairs, self._put, most_pairs=self._most_pairs, names=self._names)

        def described_anew(fingerprints: Mapping[str, str]) -> None:
            def forget() -> None:
                learner.described_anew(fingerprints)
                for tool in fingerprints:
                    experiences.forget(tool)

            on_loop(forget)

        return Knowledge(
            experiences=experiences,
            pairs=pairs,
            learner=learner,
            index=ToolIndex(worker, embedder, pairs, owners, described_anew),
            embedder=embedder,
            plan=plan,
        )

    def recall(self, knowledge: Knowledge) -> LearnedPairs:
        """Load the model, which takes a second, and the pairs that were learned with it."""
        model = knowledge.opened_embedder().model
        try:
            return self._restored(model)
        except Exception:  # noqa: BLE001  # prediction starts cold rather than not at all
            _log.warning("learned pairs could not be loaded: contexts start cold", exc_info=True)
            return LearnedPairs(self._key)

    def again(self, knowledge: Knowledge) -> Callable[[], None]:
        """Learn anew from what the store holds now; what is given makes it count, and is for the event loop.

        Whatever the store raises passes: what was learned before goes on to count then.
        """
        pairs = self._restored(knowledge.opened_embedder().model)
        return lambda: knowledge.relearned(pairs)

    def _cold(self) -> Experience:
        made = Experience(predictor=self._make_predictor(), coverage=self._make_coverage())
        if self._plan is not None:
            made.coverage.aim(self._plan.coverage, self._plan.least, self._plan.most)
        return made

    def _recorded(self, scope: str) -> Sequence[RecordedSession]:
        principal = scope if self._by_principal else None
        with self._open_store() as store:
            return store.recent_calls(_REPLAYED_SESSIONS, principal=principal)

    def _restored(self, model: str) -> LearnedPairs:
        pairs = LearnedPairs(self._key)
        with self._open_store() as store:
            pairs.restore(store.list_learned_pairs(model, self._most_pairs))
        return pairs
