"""How well a catalogue is ranked for a request when nothing was learned."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from riglm.application.evaluation.dataset import Dataset, Query, digest
from riglm.domain.errors import RiglmError
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.learning import SIGNALS
from riglm.domain.prediction import Context, PredictionInput, Scores, Vector
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.retrieval.retriever import Retriever
from riglm.domain.retrieval.scoring import LexicalIndex
from riglm.domain.retrieval.words import request_texts, tool_text, words
from riglm.ports.embedder import EmbedderPort
from riglm.ports.predictor import PredictorPort

_BATCH_SIZE: Final = 32


class EmbedderChangedError(RiglmError):
    """Another model took over while a set was embedded: its vectors cannot be compared. Run the command again."""


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


def prepare(
    dataset: Dataset, embedder: EmbedderPort, on_embedded: Callable[[int], None] = lambda _: None
) -> EmbeddedDataset:
    """Embed a set; `on_embedded` is called with the number of texts just embedded.

    Raises:
        EmbedderUnavailableError: the embedder does not answer.
        EmbedderChangedError: another model took over meanwhile.
    """
    tools = [tool_text(tool) for tool in dataset.tools]
    requests = [request_texts(query.text) for query in dataset.queries]
    texts = list(dict.fromkeys([*tools, *(text for request in requests for text in request)]))
    embedder.embed_public(texts[:1])
    model = embedder.model
    known: dict[str, Vector] = {}
    for start in range(0, len(texts), _BATCH_SIZE):
        some = texts[start : start + _BATCH_SIZE]
        known.update(zip(some, embedder.embed_public(some), strict=True))
        if embedder.model != model:
            raise EmbedderChangedError(f"{dataset.name}: {embedder.model} took over from {model} — fix: run it again")
        on_embedded(len(some))
    return EmbeddedDataset(
        dataset=dataset,
        model=model,
        vectors={tool.name: known[text] for tool, text in zip(dataset.tools, tools, strict=True)},
        contexts=tuple(_context(request, known, model) for request in requests),
    )


def text_count(dataset: Dataset) -> int:
    """How many different texts of a set are embedded."""
    requests = (text for query in dataset.queries for text in request_texts(query.text))
    return len({*map(tool_text, dataset.tools), *requests})


def _context(request: Sequence[str], known: Mapping[str, Vector], model: str) -> Context:
    return Context(text=request[0], vector=np.stack([known[text] for text in request]), model=model)


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
    prepared: EmbeddedDataset,
    ranker: Ranker,
    cuts: Sequence[int] = CUTS,
    on_ranked: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Return the metrics of one ranker on all requests of a set; `on_ranked` is called after each."""
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


def baseline(kind: str, prepared: EmbeddedDataset) -> Ranker:
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


def evaluate_usage(
    prepared: EmbeddedDataset,
    ranker: Ranker,
    rest: Sequence[int],
    cuts: Sequence[int] = CUTS,
    on_ranked: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """The figures of a ranker on the requests that it was not taught."""
    contexts = [prepared.contexts[place] for place in rest]
    gold = [prepared.dataset.queries[place].gold for place in rest]
    return measured(ranker, contexts, gold, cuts, on_ranked)
