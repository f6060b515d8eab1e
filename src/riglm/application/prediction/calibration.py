"""Calibrated probabilities that a session needs each tool, and estimates for the next session of a principal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from riglm.application.prediction.prediction_settings import Strategy
from riglm.domain.learning import MAX_TOOLS, SessionUse, Usage, WarmSet, WarmSetKey
from riglm.domain.list_plan import ALIKE
from riglm.domain.prediction import Prediction, PredictionInput, Scores
from riglm.domain.retrieval.scoring import standardized
from riglm.ports.predictor import PredictorPort

Matrix = NDArray[np.floating[Any]]

_CONSTANT: Final = "constant"
_STAGE: Final = "stage"
_SCORE: Final = "score"
_LIKELY: Final = "likely"
_LIKELY_FROM: Final = -3.0
_PRECISIONS: Final[Mapping[str, float]] = {_CONSTANT: 1.0, _STAGE: 2.0, _LIKELY: 3.0}
_PRECISION: Final = 10.0
_FORGETTING: Final = 0.03
_MAX_LOG_ODDS: Final = 12.0
_CONTEXT_SESSIONS: Final = 10  # that what is known of a context counts as
_MIN_STEP: Final = 1e-3
_MAX_STEPS: Final = 20
_MAX_CHANGE: Final = 8.0
_MAX_SUM: Final = 30.0
_MAX_SCORE: Final = 1e100
_SNAPSHOTS: Final = (0, 1, 2, 4, 8, 16, 32)

FIRST, NEW, USED = "first", "new", "used"
"""Groups of candidates that are calibrated apart: before any call, and after calls the tools that are new and used."""


class LogisticRegression:
    """A logistic regression of named features that is learned online: log(p / (1 - p)) = w·x.

    Learns by the sequential Laplace approximation (Spiegelhalter and Lauritzen 1990): the weights have a normal
    distribution around w with precision A, which begins as a diagonal. Of outcomes y of rows x, with p as above, the
    new w minimizes

        (w - w')' A (w - w') / 2 - sum (y log p + (1 - y) log (1 - p))

    by Newton's method, in steps that change no log-odds by more than 8; w' is the one before, and the curvature is the
    new A. Before that, A is drawn towards its start by the share 0.03, so that late sessions weigh more. The weight of
    a feature begins at 1, those of `constant`, `stage` and `likely` at 0: Platt's scaling (1999) of the sum of the
    features.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._prior = np.diag([_PRECISIONS.get(name, _PRECISION) for name in names])
        self.weights = np.array([float(name not in _PRECISIONS) for name in names])
        self._precision = self._prior

    def probabilities(self, features: Matrix) -> Scores:
        """Return the probability of each row."""
        found: Scores = 1 / (1 + np.exp(-np.clip(features @ self.weights, -_MAX_SUM, _MAX_SUM)))
        return found

    def learn(self, features: Matrix, outcomes: Scores) -> None:
        """Learn the outcomes, 0 or 1, of rows."""
        before, precision = self.weights, self._precision + _FORGETTING * (self._prior - self._precision)
        for _ in range(_MAX_STEPS):
            p = self.probabilities(features)
            self._precision = precision + (features.T * (p * (1 - p))) @ features
            step = np.linalg.solve(self._precision, features.T @ (p - outcomes) + precision @ (self.weights - before))
            step /= max(1.0, float(np.abs(features @ step).max()) / _MAX_CHANGE)
            self.weights = self.weights - step
            if float(np.abs(step).max()) < _MIN_STEP:
                break


_Key = tuple[str, bool, tuple[str, ...]]
"""What a regression is for: a group, whether there is a context, and the names of the features."""


class _Group(NamedTuple):
    """Candidates that are calibrated together: which ones, and their features by name, a column each."""

    key: _Key
    members: NDArray[np.bool_]
    names: tuple[str, ...]
    features: Matrix


class CalibratedPredictor(PredictorPort):
    """A strategy whose scores become the probability that the rest of a session needs the tool.

    Probabilities that the strategy states itself stay as they are. What it expected of a session after 0, 1, 2, 4, 8 …
    different tools, before it learned what came next, is kept until the session ends; then the regression learns which
    tools were needed. Sessions are learned one after the other.
    """

    def __init__(self, strategy: PredictorPort, *, snapshots: Sequence[int] = _SNAPSHOTS) -> None:
        """`snapshots` are the numbers of different tools after which an expectation is kept."""
        self.strategy = strategy
        self._snapshot_sizes = frozenset(snapshots)
        self.sessions = 0
        """The number of sessions that began."""
        self.tools: set[str] = set()
        """The tools that were called."""
        self._calls: list[str] = []
        self._snapshots: list[tuple[int, tuple[str, ...], list[_Group]]] = []
        self._regressions: dict[_Key, LogisticRegression] = {}

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        calls = prediction_input.calls
        if not calls:
            self.end_session()
            self.sessions += 1
        if len(set(calls)) in self._snapshot_sizes and tool not in calls:
            groups = self._groups(prediction_input, self.strategy.predict(prediction_input))
            self._snapshots.append((len(self._calls), prediction_input.candidates, groups))
        self._calls.append(tool)
        self.tools.add(tool)
        self.strategy.learn(prediction_input, tool, weight)

    def end_session(self) -> None:
        """Learn what the latest session needed: it has ended."""
        for place, candidates, groups in self._snapshots:
            called = frozenset(self._calls[place:])
            needed = np.fromiter((name in called for name in candidates), np.float64, len(candidates))
            for group in groups:
                regression = self._regressions.setdefault(group.key, LogisticRegression(group.names))
                regression.learn(group.features, needed[group.members])
        self._calls, self._snapshots = [], []

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        prediction = self.strategy.predict(prediction_input, explain=explain)
        groups = self._groups(prediction_input, prediction)
        evidence = self.sessions + (0 if prediction_input.relevance is None else _CONTEXT_SESSIONS)
        if not groups:
            return replace(prediction, evidence=evidence)
        scores = np.zeros(len(prediction_input.candidates))
        parts: dict[str, Scores] = {}
        for group in groups:
            regression = self._regressions.get(group.key) or LogisticRegression(group.names)
            scores[group.members] = regression.probabilities(group.features)
            if explain:
                for name, part in zip(group.names, (group.features * regression.weights).T, strict=True):
                    parts.setdefault(name, np.zeros(len(scores)))[group.members] = part
        return replace(prediction, scores=scores, contributions=parts, log_odds=None, evidence=evidence)

    def _groups(self, prediction_input: PredictionInput, prediction: Prediction) -> list[_Group]:
        """Return the candidates with what their probabilities depend on; none if these are given or all are alike."""
        parts, scores = prediction.log_odds, prediction.scores
        if not scores.size:
            return []
        if parts is None:
            if scores.min() >= 0.0 and scores.max() <= 1.0:
                return []
            parts = {_SCORE: standardized(np.clip(scores, -_MAX_SCORE, _MAX_SCORE))}
        columns = [np.clip(part, -_MAX_LOG_ODDS, _MAX_LOG_ODDS) for part in parts.values()]
        size, calls = len(prediction_input.candidates), frozenset(prediction_input.calls)
        likely = np.maximum(np.sum(columns, axis=0) - _LIKELY_FROM, 0.0)
        features = np.stack([np.ones(size), np.full(size, np.log1p(len(calls))), likely, *columns], axis=1)
        names, has_context = (_CONSTANT, _STAGE, _LIKELY, *parts), prediction_input.relevance is not None
        used = np.fromiter((name in calls for name in prediction_input.candidates), np.bool_, size)
        split = {NEW: ~used, USED: used} if calls else {FIRST: ~used}
        return [
            _Group((name, has_context, names), members, names, features[members])
            for name, members in split.items()
            if members.any()
        ]


MAX_LEARNED_TOOLS: Final = 1_000
"""Maximum number of first uses that are learned: `hybrid` takes up to a millisecond for each, and a list waits."""


class LearnedSessions:
    """A strategy that has learned the recorded sessions of a principal, or of all."""

    def __init__(
        self,
        strategy: Strategy,
        sessions: Sequence[SessionUse],
        candidates: Sequence[str],
        server_of: Callable[[str], str],
    ) -> None:
        """Have a strategy learn sessions, newest first, that has learned nothing yet.

        `candidates` are the tools of the next session, in the catalog's order.
        """
        sizes = accumulate(len(session.tools) for session in sessions)
        learned = [session for session, size in zip(sessions, sizes, strict=True) if size <= MAX_LEARNED_TOOLS]
        self._sessions = sessions
        self._tools = tuple(dict.fromkeys([*candidates, *(tool for session in learned for tool in session.tools)]))
        self._servers = {tool: server_of(tool) for tool in self._tools}
        self._strategy = strategy
        self._predictor = CalibratedPredictor(strategy.make(), snapshots=(0,))
        for session in reversed(learned):
            for place, tool in enumerate(session.tools):
                self._predictor.learn(self._input(session, session.started_at, session.tools[:place]), tool)
            self._predictor.end_session()

    def warm_set(self, key: WarmSetKey, now: float) -> WarmSet:
        """Return what the next session needs, at a time in seconds since the epoch."""
        prediction = self._predictor.predict(self._input(key, now))
        scores, likeliest = prediction.scores, dict[str, float]()
        if scores.size and float(np.ptp(scores)) > ALIKE * float(scores.max()):
            order = np.argsort(-scores, kind="stable")[:MAX_TOOLS]
            likeliest = {self._tools[place]: float(scores[place]) for place in order.tolist()}
        usage = Usage(
            evidence=len(self._sessions),
            probabilities=likeliest,
            requests=1 + float(np.mean([session.calls for session in self._sessions])),
            distinct_tools=float(np.mean([len(session.tools) for session in self._sessions])),
        )
        predictor = prediction.fallback or self._strategy.name
        return WarmSet(key=key, strategy=self._strategy.key, predictor=predictor, usage=usage, created_at=now)

    def _input(self, whose: SessionUse | WarmSetKey, time: float, calls: tuple[str, ...] = ()) -> PredictionInput:
        return PredictionInput(
            candidates=self._tools,
            calls=calls,
            servers=self._servers,
            principal=whose.principal,
            profile=whose.profile,
            client=whose.client,
            project=whose.project,
            time=time,
        )
