"""How well a catalog is ranked for a request, before and after learning, and when a search abstains."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.evaluation.dataset import Dataset, DatasetError, Query
from riglm.adapters.analytics.vectors import SqlVectors
from riglm.adapters.embedding.embedders import build_embedders
from riglm.application.reports.session_replay import digest
from riglm.cli.output import progress
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.learning import SIGNALS
from riglm.domain.prediction import Context, PredictionInput, Scores, Vector
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.retrieval.retriever import Retriever
from riglm.domain.retrieval.scoring import LexicalIndex
from riglm.domain.retrieval.words import request_texts, tool_text, words
from riglm.domain.schemas.section import EmbedderSettings
from riglm.ports.embedder import EmbedderPort
from riglm.ports.predictor import PredictorPort

_BATCH_SIZE: Final = 32
VECTORS: Final = Path(".cache/evaluation.sqlite")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmbeddedDataset:
    """A set, the vectors of its tools by name, and its requests as contexts in the order of the queries."""

    dataset: Dataset
    model: str
    vectors: Mapping[str, Vector]
    contexts: tuple[Context, ...]

    def retriever(self, pairs: LearnedPairs | None = None) -> Retriever:
        """Retrieval over the whole catalogue."""
        return Retriever(self.dataset.tools, pairs=pairs).with_vectors(self.model, self.vectors)


@contextmanager
def open_embedder(vectors: Path = VECTORS) -> Iterator[EmbedderPort]:
    """Yield the default embedder, whose vectors are kept in a file."""
    vectors.parent.mkdir(parents=True, exist_ok=True)
    kept = SqlVectors(f"sqlite:///{vectors}")
    try:
        with build_embedders(EmbedderSettings(), kept).always as embedder:
            yield embedder
    finally:
        kept.close()


def prepare(dataset: Dataset, embedder: EmbedderPort) -> EmbeddedDataset:
    """Embed the tools and the requests of a set."""
    tools = [tool_text(tool) for tool in dataset.tools]
    requests = [request_texts(query.text) for query in dataset.queries]
    texts = list(dict.fromkeys([*tools, *(text for request in requests for text in request)]))
    embedder.embed_public(texts[:1])  # the model loads
    model = embedder.model
    known: dict[str, Vector] = {}
    with progress(f"{dataset.name}: vectors", len(texts)) as advance:
        for start in range(0, len(texts), _BATCH_SIZE):
            some = texts[start : start + _BATCH_SIZE]
            known.update(zip(some, embedder.embed_public(some), strict=True))
            advance(len(some))
    if embedder.model != model:
        raise DatasetError(f"{dataset.name}: {embedder.model} took over from {model}, run it again")
    return EmbeddedDataset(
        dataset=dataset,
        model=model,
        vectors={tool.name: known[text] for tool, text in zip(dataset.tools, tools, strict=True)},
        contexts=tuple(_context(request, known, model) for request in requests),
    )


def _context(request: Sequence[str], known: Mapping[str, Vector], model: str) -> Context:
    return Context(text=request[0], vector=np.stack([known[text] for text in request]), model=model)


CUTS: Final = (5, 10, 15, 20)

BASELINES: Final = ("lexical", "dense", "rrf")
"""Words alone, vectors alone, and the two fused by rank; they learn nothing."""

Ranker: TypeAlias = Callable[[Context], Scores]
"""Scores of a whole catalogue for a context, in the catalogue's order."""

_DISCOUNTED: Final = 10
_RANK_CONSTANT: Final = 60


def evaluate_retrieval(prepared: EmbeddedDataset, ranker: Ranker, cuts: Sequence[int] = CUTS) -> dict[str, Any]:
    """Return the figures of one ranker on all requests of a set."""
    return evaluate_usage(prepared, ranker, range(len(prepared.contexts)), cuts)


def evaluate_usage(
    prepared: EmbeddedDataset, ranker: Ranker, rest: Sequence[int], cuts: Sequence[int] = CUTS
) -> dict[str, Any]:
    """Return the figures of a ranker on some requests of a set: `n`, shares in percent, and milliseconds."""
    ranks, taken_ms = [], []
    for request in rest:
        started = time.perf_counter()
        scores = ranker(prepared.contexts[request])
        taken_ms.append((time.perf_counter() - started) * 1e3)
        place = _places(scores)
        groups = prepared.dataset.queries[request].gold
        ranks.append(np.sort([min(place[column] for column in group) for group in groups]))
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


def baseline(kind: str, prepared: EmbeddedDataset) -> Ranker:
    """One of `BASELINES`."""
    index = LexicalIndex(prepared.dataset.tools)
    matrix = np.stack([prepared.vectors[tool.name] for tool in prepared.dataset.tools])

    def lexical(context: Context) -> Scores:
        return index.scores(words(context.text))

    def dense(context: Context) -> Scores:
        assert context.vector is not None  # prepared contexts have vectors
        return np.asarray(matrix @ context.vector[0], np.float64)

    def fused(context: Context) -> Scores:
        tables = (lexical(context), dense(context))
        return np.asarray(sum(1 / (_RANK_CONSTANT + 1 + _places(table)) for table in tables))

    rankers: Mapping[str, Ranker] = {"lexical": lexical, "dense": dense, "rrf": fused}
    return rankers[kind]


class PredictedRanking:
    """Ranks as a predictor does that knows nothing of a session but its context."""

    def __init__(self, predictor: PredictorPort, retriever: Retriever, prepared: EmbeddedDataset) -> None:
        self._predictor = predictor
        self._retriever = retriever
        self._names = tuple(tool.name for tool in prepared.dataset.tools)
        self._servers = {tool.name: tool.server for tool in prepared.dataset.tools}

    def __call__(self, context: Context) -> Scores:
        """The predictor's scores."""
        return self._predictor.predict(self.prediction_input(context)).scores

    def prediction_input(self, context: Context) -> PredictionInput:
        """A session that has its context, and no call yet."""
        return PredictionInput(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstentionMetrics:
    """Searches in one catalog. The requests of its set are answerable, those of other sets are not.

    The latter holds only nearly: a large catalogue also has tools for strangers' requests.
    """

    answerable: int
    unanswerable: int
    wrongly: int
    rightly: int

    @property
    def false_abstentions(self) -> float:
        """The share of answerable requests for which nothing was found."""
        return self.wrongly / self.answerable if self.answerable else 0.0

    @property
    def recall(self) -> float:
        """The share of unanswerable requests that were seen to be."""
        return self.rightly / self.unanswerable if self.unanswerable else 0.0

    @property
    def precision(self) -> float:
        """How often it was right that nothing fits, if both kinds of requests were equally many; 1 if never said."""
        said = self.recall + self.false_abstentions
        return self.recall / said if said else 1.0


def evaluate_abstention(
    catalog: EmbeddedDataset, others: Sequence[EmbeddedDataset], *, most: int = 200
) -> AbstentionMetrics:
    """Search a catalog for up to `limit` of its requests, and as many of the other sets together."""
    retriever = catalog.retriever()

    def abstentions(contexts: Sequence[Context]) -> int:
        return sum(retriever.search(context, 1).abstained for context in contexts)

    own = catalog.contexts[:most]
    share = -(-most // max(1, len(others)))
    strange = [context for other in others for context in islice(other.contexts, share)]
    return AbstentionMetrics(
        answerable=len(own), unanswerable=len(strange), wrongly=abstentions(own), rightly=abstentions(strange)
    )


MIN: Final = 20
"""Requests that each half must have."""


def halves(queries: Sequence[Query]) -> tuple[list[int], list[int]] | None:
    """Return the indexes of the history and of the rest, split by hash; None if one is too small.

    Requests of one group, or of one wording, come to the same half.
    """
    past = [digest("history" + (query.group or query.text.lower())) & 1 == 1 for query in queries]
    history = [place for place, is_past in enumerate(past) if is_past]
    rest = [place for place, is_past in enumerate(past) if not is_past]
    return (history, rest) if min(len(history), len(rest)) >= MIN else None


def example(prepared: EmbeddedDataset, predictor: PredictorPort, history: Sequence[int]) -> Ranker:
    """A ranking that has seen the tools of these requests used, each once, in their order."""
    pairs = LearnedPairs()
    ranking = PredictedRanking(predictor, prepared.retriever(pairs), prepared)
    tools = prepared.dataset.tools
    signal = SIGNALS[DiscoveryMethod.LISTED]
    for at, place in enumerate(history):
        context = prepared.contexts[place]
        prediction_input = ranking.prediction_input(context)  # as it was before any of the request's tools was called
        for group in prepared.dataset.queries[place].gold:
            tool = tools[group[0]]
            predictor.learn(prediction_input, tool.name, signal)
            pairs.learn(context, tool.name, signal, scope="", at=float(at), description_hash=tool.fingerprint)
    return ranking
