"""Fit and check the probability that a hit is a tool that the request asks for."""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.evaluation.retrieval import EmbeddedDataset
from riglm.domain.prediction import Scores
from riglm.domain.retrieval.retriever import Retriever, log_odds, probabilities

_MAX_REQUESTS = 60
_HITS = 10
_RIVALS = 300
_CUT_OFF = 0.1
_BINS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
_WEIGHTS = tuple(product((0.2, 0.3, 0.45), (0.0, 5.0, 10.0), (0.0, 5.0, 10.0)))


class _Row(NamedTuple):
    """The tools that come first for a request, which of the first hits it asks for, and the weight of the request."""

    ranking: Scores
    similarity: Scores
    coverage: Scores
    is_wanted: NDArray[np.bool_]
    weight: float


def print_probability(sets: Sequence[EmbeddedDataset]) -> None:
    """Fit on all sets together, each weighing the same, then compare estimated and true shares set by set."""
    rows = {f"{data.dataset.name} ({len(data.dataset.tools)})": list(_rows(data)) for data in sets}
    everything = [row for some in rows.values() for row in some]
    print("\n| ranking | likeness | coverage | intercept | odds | loss |\n|" + "---:|" * 6)
    for found in sorted((_fit(everything, *weights) for weights in _WEIGHTS), key=lambda found: found[-1])[:5]:
        print("| {} | {} | {} | {:.2f} | {:.2f} | {:.4f} |".format(*found))
    print(
        f"\nAs it ships, in percent: average probability and true share of the first hit and of the first {_HITS}; if "
        f"hits under {_CUT_OFF} of the first are cut off, how many hits remain and how many wanted ones are lost\n\n"
        f"| | first | true | first {_HITS} | true | remain | lost |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    for name, some in rows.items():
        _print_set(name, some)
    print("\n| probability | hits | average | true |\n|---|---:|---:|---:|")
    estimated = np.concatenate([_probabilities(row) for row in everything])
    is_wanted = np.concatenate([row.is_wanted for row in everything])
    for low, high in pairwise(_BINS):
        inside = (estimated >= low) & (estimated < high + (high == 1))
        true = f"{100 * estimated[inside].mean():.1f} | {100 * is_wanted[inside].mean():.1f}" if inside.any() else " | "
        print(f"| {low} to {high} | {inside.sum()} | {true} |")


def _print_set(name: str, rows: Sequence[_Row]) -> None:
    estimated = [_probabilities(row) for row in rows]
    remain = [each >= _CUT_OFF * each[0] for each in estimated]
    wanted = sum(row.is_wanted.sum() for row in rows)
    lost = sum((row.is_wanted & ~kept).sum() for row, kept in zip(rows, remain, strict=True))
    figures = (
        100 * np.mean([each[0] for each in estimated]),
        100 * np.mean([row.is_wanted[0] for row in rows]),
        100 * np.concatenate(estimated).mean(),
        100 * np.concatenate([row.is_wanted for row in rows]).mean(),
        np.mean([kept.sum() for kept in remain]),
        100 * lost / max(wanted, 1),
    )
    print(f"| {name} | {' | '.join(f'{figure:.1f}' for figure in figures)} |", flush=True)


def _probabilities(row: _Row) -> Scores:
    found = probabilities(row.ranking, row.similarity, row.coverage)
    return np.minimum.accumulate(found[: len(row.is_wanted)])


def _rows(data: EmbeddedDataset) -> Iterator[_Row]:
    index = Retriever(data.dataset.tools).with_vectors(data.model, data.vectors)
    count = min(len(data.contexts), _MAX_REQUESTS)
    for context, query in islice(zip(data.contexts, data.dataset.queries, strict=True), count):
        ranking = np.maximum(index.evidence(context), 0.0)
        _, similarity = index.similarity(context)
        first = np.argsort(-ranking, kind="stable")[:_RIVALS]
        wanted = {column for group in query.gold for column in group}
        yield _Row(
            ranking=ranking[first],
            similarity=similarity[first],
            coverage=index.coverage(context)[first],
            is_wanted=np.array([int(column) in wanted for column in first[:_HITS]]),
            weight=1 / count,
        )


def _fit(rows: Sequence[_Row], ranking: float, similarity: float, coverage: float) -> tuple[float, ...]:
    """Return the weights, the constants of a logistic regression on the log-odds, and the loss."""

    def odds(row: _Row) -> Scores:
        evidence = ranking * row.ranking + similarity * row.similarity + coverage * row.coverage
        return log_odds(evidence)[: len(row.is_wanted)]

    log_odds_of_hits = np.concatenate([odds(row) for row in rows])
    features = np.stack([np.ones(len(log_odds_of_hits)), log_odds_of_hits], axis=1)
    weights = np.concatenate([np.full(len(row.is_wanted), row.weight) for row in rows])
    weights /= weights.sum()
    wanted = np.concatenate([row.is_wanted for row in rows]).astype(float)
    slopes = np.zeros(2)
    for _ in range(30):  # Newton's method
        estimated = 1 / (1 + np.exp(-features @ slopes))
        curvature = (features * (weights * estimated * (1 - estimated))[:, None]).T @ features
        slopes += np.linalg.solve(curvature + 1e-9 * np.eye(2), features.T @ (weights * (wanted - estimated)))
    estimated = np.clip(1 / (1 + np.exp(-features @ slopes)), 1e-9, 1 - 1e-9)
    loss = -float((weights * (wanted * np.log(estimated) + (1 - wanted) * np.log(1 - estimated))).sum())
    return (ranking, similarity, coverage, *slopes.tolist(), loss)
