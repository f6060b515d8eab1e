"""R@5 with the tools of thousands of MCP servers mixed in."""

from collections.abc import Sequence

from benchmarks.evaluation.retrieval import BASELINES, EmbeddedDataset, baseline, evaluate_retrieval
from benchmarks.retrieval.sets import print_table, untaught


def print_distractors(sets: Sequence[EmbeddedDataset]) -> None:
    """Compare riglm with words alone, vectors alone and their fusion by rank, and name the sets where one is better."""
    found = {kind: [evaluate_retrieval(data, baseline(kind, data))["r@5"] for data in sets] for kind in BASELINES}
    riglm = [evaluate_retrieval(data, untaught(data))["r@5"] for data in sets]
    names = [data.dataset.name for data in sets]
    print_table("R@5 with distractors, nothing learned", names, [*found.items(), ("riglm", riglm)])
    best = [max(each) for each in zip(*found.values(), strict=True)]
    below = [f"{name} ({own - other:+.1f})" for name, own, other in zip(names, riglm, best, strict=True) if own < other]
    print(f"\nBelow the best of {', '.join(BASELINES)}: {', '.join(below) or 'none'}")
