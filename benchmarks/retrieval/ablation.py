"""One part at a time taken away, everything else as it ships."""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks.evaluation.retrieval import (
    BASELINES,
    EmbeddedDataset,
    baseline,
    evaluate_retrieval,
    evaluate_usage,
    example,
    halves,
)
from benchmarks.retrieval.sets import print_table, untaught
from riglm.adapters.prediction.embedding import EmbeddingPredictor
from riglm.domain.retrieval import contexts, pairs, retriever
from riglm.domain.retrieval.retriever import SignalWeights
from riglm.domain.retrieval.scoring import FIELD_WEIGHTS, LexicalIndex

Change = tuple[Any, str, Any]


def _fields(**changed: float) -> Change:
    named = {name.replace("_", " "): weight for name, weight in changed.items()}
    return retriever, "LexicalIndex", partial(LexicalIndex, weights={**FIELD_WEIGHTS, **named})


RETRIEVAL: dict[str, Change | None] = {
    "as it ships": None,
    "without sentences": (retriever, "SENTENCES_WEIGHT", 0.0),
    "without servers": (retriever, "SERVER_WEIGHT", 0.0),
    "without parameter descriptions": _fields(parameter_descriptions=0.0),
    "without parameter names": _fields(parameters=0.0),
    "names like descriptions": _fields(name=1.0),
    "words as much as vectors": (retriever, "REAL_MODEL", SignalWeights(lexical=0.5, semantic=0.5)),
    "vectors alone": (retriever, "REAL_MODEL", SignalWeights(lexical=0.0, semantic=1.0)),
    "words alone": (retriever, "REAL_MODEL", SignalWeights(lexical=1.0, semantic=0.0)),
}

_squared = vars(pairs.PairReliability)["trust"].fget

USAGE: dict[str, Change | None] = {
    "as it ships": None,
    "votes always trusted": (pairs.PairReliability, "trust", property(lambda _: 1.0)),
    "trust not squared": (pairs.PairReliability, "trust", property(lambda kept: _squared(kept) ** 0.5)),
    "votes count half": (retriever, "LEARNED_WEIGHT", 3.0),
    "votes count twice": (retriever, "LEARNED_WEIGHT", 12.0),
    "contexts without words": (contexts, "WORDS_WEIGHT", 0.0),
}


@contextlib.contextmanager
def _changed(change: Change | None) -> Iterator[None]:
    if change is None:
        yield
        return
    where, name, value = change
    before = vars(where)[name]
    setattr(where, name, value)
    try:
        yield
    finally:
        setattr(where, name, before)


def print_retrieval(sets: Sequence[EmbeddedDataset]) -> None:
    """R@5 with nothing learned."""
    rows = [(kind, [evaluate_retrieval(data, baseline(kind, data))["r@5"] for data in sets]) for kind in BASELINES]
    for name, change in RETRIEVAL.items():
        with _changed(change):
            rows.append((name, [evaluate_retrieval(data, untaught(data))["r@5"] for data in sets]))
    print_table("R@5, nothing learned", [data.dataset.name for data in sets], rows)


def print_usage(sets: Sequence[EmbeddedDataset]) -> None:
    """R@10 and C@10 on one half after the other was learned."""
    split = [(data, parts) for data in sets if (parts := halves(data.dataset.queries)) is not None]
    found: list[tuple[str, list[dict[str, Any]]]] = [
        ("without history", [evaluate_usage(data, untaught(data), rest) for data, (_, rest) in split])
    ]
    for name, change in USAGE.items():
        with _changed(change):
            rankings = [(data, example(data, EmbeddingPredictor(), history), rest) for data, (history, rest) in split]
            found.append((name, [evaluate_usage(data, ranking, rest) for data, ranking, rest in rankings]))
    for figure in ("r@5", "r@10", "c@10"):
        rows = [(name, [figures[figure] for figures in each]) for name, each in found]
        print_table(f"{figure}, half of the requests as history", [data.dataset.name for data, _ in split], rows)
