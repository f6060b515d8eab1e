"""All that prediction works with, loaded on the worker."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from riglm.application.owners import ToolOwners
from riglm.application.prediction.learner import Learner
from riglm.application.prediction.replay import replayed
from riglm.application.prediction.tool_index import ToolIndex
from riglm.application.prediction.worker import Worker
from riglm.domain.coverage import CoverageCalibrator
from riglm.domain.learning import LearnedPair
from riglm.domain.prediction import Situation
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.ports.analytics import AnalyticsPort, PairsForgotten
from riglm.ports.embedder import EmbedderPort
from riglm.ports.predictor import PredictorPort

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
    learned: bool = False
    """Whether anything was learned yet."""

    def with_relevance(self, situation: Situation, scope: str) -> Situation:
        """The situation with how well each candidate fits its context, if it has one."""
        retriever = self.index.retriever
        if situation.context is None or retriever is None:
            return situation
        relevance = retriever.relevance(situation.context, situation.candidates, scope=scope)
        return replace(situation, relevance=relevance)


def load_knowledge(
    *,
    worker: Worker,
    owners: ToolOwners,
    predictor: PredictorPort,
    embedder: EmbedderPort,
    coverage: CoverageCalibrator,
    open_store: Callable[[], AnalyticsPort],
    put: Callable[[LearnedPair | PairsForgotten, int], None],
    on_loop: Callable[[Callable[[], None]], object],
    now: float,
    most_pairs: int,
) -> Knowledge:
    """Start warm from the store: its learned pairs, and its latest sessions once more past the predictor.

    A store that is away means a cold start, and is logged.
    """
    embedder.__enter__()
    pairs = LearnedPairs()
    learned = False
    try:
        with open_store() as store:
            pairs.restore(store.list_learned_pairs(embedder.model, most_pairs))
            history = store.recent_calls(_REPLAYED_SESSIONS, now - _REPLAYED_SECONDS)
        learned = replayed(history, predictor) > 0
    except Exception:  # noqa: BLE001  # prediction starts cold rather than not at all
        _log.warning("what was learned could not be loaded: prediction starts cold", exc_info=True)
    learner = Learner(predictor, pairs, put, most_pairs=most_pairs)

    def described_anew(tool: str, fingerprint: str) -> None:
        on_loop(lambda: learner.described_anew(tool, fingerprint))

    index = ToolIndex(worker, embedder, pairs, owners, described_anew)
    return Knowledge(
        predictor=predictor,
        pairs=pairs,
        learner=learner,
        index=index,
        embedder=embedder,
        coverage=coverage,
        learned=learned,
    )
