"""Default weights of the hybrid, fitted on public sets under the Apache-2.0 or MIT licence."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.evaluation.dataset import find_sets
from benchmarks.evaluation.retrieval import open_embedder, prepare
from benchmarks.evaluation.sequences import evaluate_sequences, read_sessions
from riglm.adapters.prediction.counts import IndexedInput
from riglm.adapters.prediction.hybrid import (
    NEVER_NEGATIVE,
    NEW,
    STAGES,
    TURN,
    USED,
    HybridPredictor,
    Matrix,
    log_softmax,
)
from riglm.domain.prediction import PredictionInput, Scores
from riglm.ports.predictor import PredictorPort

_SETS: Final = ("apibank", "bfcl_multiturn", "nestful", "sealtools", "taubench", "toolalpaca", "tooltalk", "workbench")
_SESSIONS: Final = 150
_EXAMPLES: Final = 300.0
"""Number of choices that each set counts as."""
_PRECISION: Final = 5.0
_STEPS: Final = 20
_MIN_STEP: Final = 3e-3

Choice = tuple[Matrix, int]


class _Recorder(HybridPredictor):
    """A hybrid that records the choices that its logits learn from."""

    def __init__(self) -> None:
        super().__init__()
        self.choices: dict[str, list[Choice]] = {logit: [] for logit in (*STAGES, "used", "turn")}

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        if prediction_input.relevance is not None:
            without = replace(prediction_input, context=None, relevance=None)
            self._learn_weights(IndexedInput(without), tool, weight)
        super().learn(prediction_input, tool, weight)

    def _learn_choice(self, logit: str, table: Matrix, chosen: int, weight: float) -> None:
        self.choices[logit].append((table.astype(np.float32), chosen))  # the predictor stays at its default weights


def run(data: Path, names: Sequence[str] = ()) -> None:
    """Print the weights by logit and feature: the mean over the sets, each fitted alone."""
    labels = {**dict.fromkeys(STAGES, NEW), "used": USED, "turn": TURN}
    found: dict[str, list[Scores]] = {logit: [] for logit in labels}
    with open_embedder() as embedder:
        for directory in find_sets(data, list(names or _SETS), side="dev", file="sessions.jsonl"):
            sessions, recorder = read_sessions(directory, limit=_SESSIONS), _Recorder()
            embedded = prepare(sessions.dataset, embedder)
            evaluate_sequences(sessions, embedded, partial(_same, recorder), protocol="online")
            for logit, choices in recorder.choices.items():
                least = [0.0 if logit in STAGES and name in NEVER_NEGATIVE else -np.inf for name in labels[logit]]
                found[logit].append(fit(choices, np.array(least)))
    for logit, weights in found.items():
        print(logit, dict(zip(labels[logit], np.mean(weights, axis=0).round(2).tolist(), strict=True)))


def _same(predictor: PredictorPort) -> PredictorPort:
    return predictor


def fit(choices: Sequence[Choice], least: Scores) -> Scores:
    """Return the weights of a conditional logit with a normal prior around 0, none below `least`, by Newton's method.

    A weight at its bound leaves the step while the gradient presses it there (Bertsekas 1982, projected Newton).
    """
    size = len(least)
    weights, share = np.zeros(size), _EXAMPLES / max(len(choices), 1)
    for _ in range(_STEPS):
        gradient, curvature = _PRECISION * weights, _PRECISION * np.eye(size)
        for features, chosen in choices:
            p = np.exp(log_softmax(weights @ features))
            mean = features @ p
            gradient += share * (mean - features[:, chosen])
            curvature += share * ((features * p) @ features.T - np.outer(mean, mean))
        free = (weights > least) | (gradient < 0)
        step = np.zeros(size)
        step[free] = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
        before = weights
        weights = np.maximum(weights - step * min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-9)), least)
        step = before - weights
        if np.abs(step).max() < _MIN_STEP:
            break
    return weights
