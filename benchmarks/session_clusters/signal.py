"""What the kind of work, inferred from a session's calls and context, adds to the prediction of the next tool."""

import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from riglm.adapters.prediction.counts import IndexedInput
from riglm.adapters.prediction.hybrid import HybridPredictor
from riglm.adapters.prediction.online_logit import Matrix
from riglm.application.evaluation.retrieval import prepare
from riglm.application.evaluation.sequences import evaluate_sequences, read_sessions
from riglm.domain.prediction import Prediction, PredictionInput, Scores, Vector
from riglm.domain.session_clusters import ClusteredCall, SessionProfile, cluster_sessions
from riglm.ports.embedder import EmbedderPort

_SETS: Final = ("toolathlon", "taubench", "workbench", "bfcl_multiturn", "scienceworld")
_SHARES: Final = (0.0, 0.1, 0.2, 0.4)
_FIGURES: Final = ("new@5", "new@15", "h@15")
_GROWTH: Final = 1.1
_PRIOR_SESSIONS: Final = 5.0
_CONTEXT_WEIGHT: Final = 5.0
_MIN_SHARE: Final = 1e-12
_PRIOR_CALLS: Final = 100.0


class KindOfWork:
    """The probability of each tool in the kind of work that a session probably is.

    The posterior of a cluster is its number of sessions, times the shares of its sessions that use the tools of the
    session so far, times the exponential of the similarity of contexts: before the first call, size and context decide.
    """

    def __init__(self) -> None:
        self._sessions: list[tuple[list[ClusteredCall], Vector | None]] = []
        self._clustered = 0
        self._clusters: list[tuple[int, Counter[str], Vector | None]] = []
        self._overall: Counter[str] = Counter()

    def learn(self, indexed: IndexedInput, tool: str) -> None:
        """Add a call to the current session; one without calls before it begins a session."""
        if not indexed.calls or not self._sessions:
            self._sessions.append(([], _context(indexed)))
        self._sessions[-1][0].append(ClusteredCall(tool, indexed.server_of(tool)))

    def share(self, indexed: IndexedInput) -> Scores:
        """The probability of each candidate to be among the tools of the session."""
        if len(self._sessions) >= _GROWTH * self._clustered:
            self._cluster()
        logs = np.array([self._log_posterior(indexed, *cluster) for cluster in self._clusters])
        posterior = np.exp(logs - logs.max()) if len(logs) else logs
        found = np.full(indexed.size, 1.0 / indexed.size)
        for weight, (sessions, tools, _) in zip(posterior / posterior.sum(), self._clusters, strict=True):
            found += weight * indexed.spread(tools) / sessions
        return np.asarray(found / found.sum())

    def _cluster(self) -> None:
        profiles = [SessionProfile(calls=calls, context=context) for calls, context in self._sessions]
        labels = np.array(cluster_sessions(profiles))
        self._clustered, self._clusters = len(profiles), []
        for label in range(int(labels.max(initial=-1)) + 1):
            inside = [profiles[place] for place in np.flatnonzero(labels == label)]
            tools = Counter(tool for each in inside for tool in {call.tool for call in each.calls})
            contexts = [each.context for each in inside if each.context is not None]
            self._clusters.append((len(inside), tools, np.mean(contexts, axis=0) if contexts else None))
        self._overall = sum((tools for _, tools, _ in self._clusters), Counter[str]())

    def _log_posterior(
        self, indexed: IndexedInput, sessions: int, tools: Counter[str], context: Vector | None
    ) -> float:
        found = float(np.log(sessions))
        for tool in indexed.ages:
            prior = _PRIOR_SESSIONS * (self._overall[tool] + 0.1) / (self._clustered + 1)
            found += float(np.log((tools[tool] + prior) / (sessions + _PRIOR_SESSIONS)))
        now = _context(indexed)
        return found + (_CONTEXT_WEIGHT * float(context @ now) if context is not None and now is not None else 0.0)


class Mixture:
    """Shares of explanations, learned by online expectation and maximization from prior shares."""

    def __init__(self, prior: Mapping[str, float]) -> None:
        self._counts = _PRIOR_CALLS * np.array(list(prior.values()))

    def mix(self, explanations: Matrix) -> Scores:
        """Return the mixed distribution over the candidates; explanations are rows."""
        return np.asarray(self._counts @ explanations / self._counts.sum())

    def learn(self, explanations: Matrix, target: int, weight: float) -> None:
        """The candidate at `target` was called: raise the shares of the explanations that expected it."""
        made = explanations[:, target] * self._counts
        self._counts += weight * made / max(float(made.sum()), _MIN_SHARE)


class KindPredictor(HybridPredictor):
    """The hybrid, whose probabilities of new tools are mixed with those by the kind of work.

    The share of the kind of work starts at `share` and is learned online; 0 leaves the hybrid as it is.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self._kind = KindOfWork()
        self._mixture = Mixture({"hybrid": 1.0 - share, "kind": share}) if share else None

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        indexed = IndexedInput(prediction_input)
        if self._mixture is not None:
            target = indexed.column[tool]
            if not indexed.used[target]:
                scores = super().predict(prediction_input).scores
                self._mixture.learn(self._explanations(indexed, scores), target, weight)
            self._kind.learn(indexed, tool)
        super().learn(prediction_input, tool, weight)

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        found, indexed = super().predict(prediction_input, explain=explain), IndexedInput(prediction_input)
        if self._mixture is None or indexed.used.all():
            return found
        mixed = self._mixture.mix(self._explanations(indexed, found.scores))
        mass = np.logaddexp.reduce(found.scores[~indexed.used])
        return Prediction(scores=np.where(indexed.used, found.scores, np.log(np.maximum(mixed, _MIN_SHARE)) + mass))

    def _explanations(self, indexed: IndexedInput, scores: Scores) -> Matrix:
        """The distributions over the new tools by the hybrid, and by the kind of work."""
        rows = np.stack([np.exp(scores - scores.max()), self._kind.share(indexed)]) * ~indexed.used
        return np.asarray(rows / rows.sum(1, keepdims=True))


def run(data: Path, embedder: EmbedderPort, *, as_json: bool) -> None:
    """Print the figures of the hybrid (share 0) and of each initial share of the signal, by five folds."""
    found = {name: _measure(data / name, embedder) for name in _SETS}
    if as_json:
        print(json.dumps(found, indent=1))
        return
    table = Table("set", "share", *_FIGURES, title="The kind of work as a signal, %", title_justify="left")
    for name, by_share in found.items():
        for share, figures in by_share.items():
            table.add_row(name, share, *(f"{figures[figure]:.2f}" for figure in _FIGURES))
    Console(width=120).print(table)


def _measure(directory: Path, embedder: EmbedderPort) -> Mapping[str, Mapping[str, Any]]:
    sessions = read_sessions(directory)
    prepared = prepare(sessions.dataset, embedder)
    return {str(share): evaluate_sequences(sessions, prepared, partial(KindPredictor, share)) for share in _SHARES}


def _context(indexed: IndexedInput) -> Vector | None:
    context = indexed.prediction_input.context
    if context is None or context.vector is None:
        return None
    return context.vector if context.vector.ndim == 1 else context.vector[0]
