"""The hybrid without each family of signals in turn."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.evaluation.dataset import find_sets
from benchmarks.evaluation.retrieval import open_embedder, prepare
from benchmarks.evaluation.sequences import evaluate_sequences, read_sessions
from benchmarks.prediction.blend import BlendPredictor
from riglm.adapters.prediction.hybrid import FAMILIES, HybridPredictor
from riglm.ports.predictor import PredictorPort

_FIGURES = ("new@5", "new@15", "h@5", "h@15")


def run(data: Path, names: list[str]) -> None:
    makers: dict[str, Callable[[], PredictorPort]] = {
        "hybrid": HybridPredictor,
        **{f"without {family}": partial(HybridPredictor, without=(family,)) for family in FAMILIES},
        "blend": BlendPredictor,
    }
    print(f"{'':16}{'':22}{''.join(f'{figure:>8}' for figure in _FIGURES)}")
    with open_embedder() as embedder:
        for directory in find_sets(data, names, side="dev", file="sessions.jsonl"):
            found = read_sessions(directory)
            prepared = prepare(found.dataset, embedder)
            for label, make in makers.items():
                figures = evaluate_sequences(found, prepared, make)
                numbers = "".join(f"{figures[figure]:8.1f}" for figure in _FIGURES)
                print(f"{directory.name:16}{label:22}{numbers}", flush=True)
