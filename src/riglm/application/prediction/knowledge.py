"""All that prediction works with, loaded on the worker."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from threadpoolctl import threadpool_limits

from riglm.application.owners import ToolOwners
from riglm.application.prediction.learner import Learner
from riglm.application.prediction.replay import latest, replayed
from riglm.application.prediction.tool_index import ToolIndex
from riglm.application.prediction.worker import Worker
from riglm.domain.coverage import CoverageCalibrator
from riglm.domain.learning import LearnedPair
from riglm.domain.prediction import Situation
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.ports.analytics import AnalyticsPort, PairsForgotten
from riglm.ports.embedder import EmbedderPort
from riglm.ports.predictor import PredictorPort

OnLoop = Callable[[Callable[[], None]], object]
"""Has something done on the event loop, asked from any thread."""

_REPLAYED_SESSIONS: Final = 300
_REPLAYED_SECONDS: Final = 90 * 86_400.0
_log: Final = logging.getLogger("riglm.prediction")


@dataclass(slots=True, kw_only=True)
class Knowledge:
    """What was learned, and what learns. Read and changed on the event loop once it is loaded."""

    predictor: PredictorPort
    pairs: LearnedPairs
    learner: Learner
    index: ToolIndex
    embedder: EmbedderPort
    coverage: CoverageCalibrator
    used: set[str]
    """The tools that were learned to have been used."""

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

    def relearned(self, predictor: PredictorPort, used: set[str], pairs: LearnedPairs) -> None:
        """Go on with what was learned anew."""
        self.predictor = self.learner.predictor = predictor
        self.used = used
        self.recalled(pairs)

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
    ) -> None:
        """`put` hands a record to the recorder; of learned pairs at most `most_pairs` are kept, hashed under `key`."""
        self._open_store = open_store
        self._make_predictor = make_predictor
        self._make_embedder = make_embedder
        self._make_coverage = make_coverage
        self._put = put
        self._most_pairs = most_pairs
        self._key = key

    def load(self, worker: Worker, owners: ToolOwners, on_loop: OnLoop, now: float) -> Knowledge:
        """A predictor that saw the latest sessions once more; no model is loaded and no pair known yet."""
        threadpool_limits(1, user_api="blas")  # products this small only wait for a second thread
        embedder, pairs = self._make_embedder(), LearnedPairs(self._key)
        try:
            predictor, used = self._replayed(now)
        except Exception:  # noqa: BLE001  # prediction starts cold rather than not at all
            _log.warning("past sessions could not be loaded: prediction starts cold", exc_info=True)
            predictor, used = self._make_predictor(), set()
        learner = Learner(predictor, pairs, self._put, most_pairs=self._most_pairs)

        def described_anew(tool: str, fingerprint: str) -> None:
            on_loop(lambda: learner.described_anew(tool, fingerprint))

        return Knowledge(
            predictor=predictor,
            pairs=pairs,
            learner=learner,
            index=ToolIndex(worker, embedder, pairs, owners, described_anew),
            embedder=embedder,
            coverage=self._make_coverage(),
            used=used,
        )

    def recall(self, knowledge: Knowledge) -> LearnedPairs:
        """Load the model, which takes a second, and the pairs that were learned with it."""
        model = knowledge.opened_embedder().model
        try:
            return self._restored(model)
        except Exception:  # noqa: BLE001  # prediction starts cold rather than not at all
            _log.warning("learned pairs could not be loaded: contexts start cold", exc_info=True)
            return LearnedPairs(self._key)

    def again(self, knowledge: Knowledge, now: float) -> Callable[[], None]:
        """Learn anew from what the store holds now; what is given makes it count, and is for the event loop.

        Whatever the store raises passes: what was learned before goes on to count then.
        """
        predictor, used = self._replayed(now)
        pairs = self._restored(knowledge.opened_embedder().model)
        return lambda: knowledge.relearned(predictor, used, pairs)

    def _replayed(self, now: float) -> tuple[PredictorPort, set[str]]:
        """A predictor that saw the latest sessions once more, and the tools that they used."""
        predictor = self._make_predictor()
        with self._open_store() as store:
            history = store.recent_calls(_REPLAYED_SESSIONS, now - _REPLAYED_SECONDS)
        return predictor, replayed(latest(history), predictor)

    def _restored(self, model: str) -> LearnedPairs:
        pairs = LearnedPairs(self._key)
        with self._open_store() as store:
            pairs.restore(store.list_learned_pairs(model, self._most_pairs))
        return pairs
