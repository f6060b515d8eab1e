"""How well a catalogue is ranked for a request when nothing was learned."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from riglm.application.evaluation.prepared import Prepared
from riglm.domain.prediction import Context, Scores, Situation
from riglm.domain.retrieval.lexical import LexicalIndex
from riglm.domain.retrieval.retriever import Retriever
from riglm.domain.retrieval.words import words
from riglm.ports.predictor import PredictorPort

CUTS: Final = (5, 10, 15, 20)

BASELINES: Final = ("lexical", "dense", "rrf")
"""Words alone, vectors alone, and the two fused by rank; they learn nothing."""

Ranker: TypeAlias = Callable[[Context], Scores]
"""Scores of a whole catalogue for a context, in the catalogue's order."""

Gold: TypeAlias = Sequence[Sequence[Sequence[int]]]
"""For each request groups of equally right columns."""

_DISCOUNTED: Final = 10
_RANK_CONSTANT: Final = 60


def evaluate_retrieval(
    prepared: Prepared, ranker: Ranker, cuts: Sequence[int] = CUTS, on_ranked: Callable[[int], None] = lambda _: None
) -> dict[str, Any]:
    """The figures of one ranker on all requests of a set; `on_ranked` is told of each."""
    return measured(ranker, prepared.contexts, [query.gold for query in prepared.dataset.queries], cuts, on_ranked)


def measured(
    ranker: Ranker,
    contexts: Sequence[Context],
    gold: Gold,
    cuts: Sequence[int] = CUTS,
    on_ranked: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """`n`, shares in percent, and the time of ranking in milliseconds."""
    ranks, taken_ms = [], []
    for context, groups in zip(contexts, gold, strict=True):
        started = time.perf_counter()
        scores = ranker(context)
        taken_ms.append((time.perf_counter() - started) * 1e3)
        place = _places(scores)
        ranks.append(np.sort([min(place[column] for column in group) for group in groups]))
        on_ranked(1)
    return {
        "n": len(ranks),
        **figures(ranks, cuts),
        "p50_ms": round(float(np.quantile(taken_ms, 0.5)), 3),
        "p99_ms": round(float(np.quantile(taken_ms, 0.99)), 3),
    }


def figures(ranks: Sequence[NDArray[np.int64]], cuts: Sequence[int] = CUTS) -> dict[str, float]:
    """Shares in percent from the sorted ranks, counted from 0, of the tools that each request needs.

    `r@k`: found within the first k; `c@k`: requests with all of them there; `n@10`: discounted gain of the first ten
    against the ideal; `mrr`: one by the rank of the first.
    """

    def mean(values: Sequence[float]) -> float:
        return round(100 * float(np.mean(values)), 2)

    found = {f"r@{cut}": mean([float((best < cut).mean()) for best in ranks]) for cut in cuts}
    complete = {f"c@{cut}": mean([float((best < cut).all()) for best in ranks]) for cut in cuts}
    first = mean([1 / (int(best[0]) + 1) for best in ranks])
    return {**found, f"n@{_DISCOUNTED}": mean([_gain(best) for best in ranks]), "mrr": first, **complete}


def baseline(kind: str, prepared: Prepared) -> Ranker:
    """One of `BASELINES`."""
    index = LexicalIndex(prepared.dataset.tools)
    matrix = np.stack([prepared.vectors[tool.name] for tool in prepared.dataset.tools])

    def lexical(context: Context) -> Scores:
        return index.scores(words(context.text))

    def dense(context: Context) -> Scores:
        assert context.vector is not None  # noqa: S101  # prepared contexts have vectors
        return np.asarray(matrix @ context.vector[0], np.float64)

    def fused(context: Context) -> Scores:
        tables = (lexical(context), dense(context))
        return np.asarray(sum(1 / (_RANK_CONSTANT + 1 + _places(table)) for table in tables))

    rankers: Mapping[str, Ranker] = {"lexical": lexical, "dense": dense, "rrf": fused}
    return rankers[kind]


class PredictedRanking:
    """Ranks as a predictor does that knows nothing of a session but its context."""

    def __init__(self, predictor: PredictorPort, retriever: Retriever, prepared: Prepared) -> None:
        self._predictor = predictor
        self._retriever = retriever
        self._names = tuple(tool.name for tool in prepared.dataset.tools)
        self._servers = {tool.name: tool.server for tool in prepared.dataset.tools}

    def __call__(self, context: Context) -> Scores:
        """The predictor's scores."""
        return self._predictor.predict(self.situation(context)).scores

    def situation(self, context: Context) -> Situation:
        """A session that has its context, and no call yet."""
        return Situation(
            candidates=self._names,
            servers=self._servers,
            context=context,
            relevance=self._retriever.relevance(context, self._names),
        )


def _places(scores: Scores) -> NDArray[np.int64]:
    """The rank of each column from 0; equal scores keep the order of columns."""
    place = np.empty(len(scores), np.int64)
    place[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return place


def _gain(best: NDArray[np.int64]) -> float:
    ideal = (1 / np.log2(np.arange(min(_DISCOUNTED, len(best))) + 2)).sum()
    return float((1 / np.log2(best[best < _DISCOUNTED] + 2)).sum() / ideal)
