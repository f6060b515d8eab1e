"""How well the next tool of recorded sessions is predicted."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from benchmarks.evaluation.dataset import Dataset, Query, Row, read_tools, rows
from benchmarks.evaluation.retrieval import EmbeddedDataset
from riglm.application.reports.session_replay import digest
from riglm.domain.prediction import Context, PredictionInput, Relevance
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.ports.predictor import PredictorPort

CUTS: Final = (1, 5, 10, 15)
DEFAULT_LIMIT: Final = 3_000
MIN: Final = 20
"""Sessions that a set must have to be measured."""
FOLDS: Final = 5

Protocol = Literal["kfold", "online"]
"""`kfold`: learn from four parts of the sessions, predict the fifth; `online`: learn from each after predicting it."""


@dataclass(slots=True, kw_only=True, eq=False)
class RankTally:
    """Predicted calls: the rank of each called tool from 0, whether its session was new to it, and the time taken."""

    ranks: list[int] = field(default_factory=list)
    fresh: list[bool] = field(default_factory=list)
    taken_ms: list[float] = field(default_factory=list)

    def figures(self, cuts: Sequence[int] = CUTS) -> dict[str, Any]:
        """`h@k` of all calls and `new@k` of fresh ones, in percent, their numbers, and milliseconds per prediction."""
        fresh_ranks = [rank for rank, fresh in zip(self.ranks, self.fresh, strict=True) if fresh]
        return {
            **hits("h", self.ranks, cuts),
            **hits("new", fresh_ranks, cuts),
            "calls": len(self.ranks),
            "new_calls": len(fresh_ranks),
            "p50_ms": percentile(self.taken_ms, 0.5),
            "p99_ms": percentile(self.taken_ms, 0.99),
        }


def hits(name: str, ranks: Sequence[int], cuts: Sequence[int]) -> dict[str, float | None]:
    """The share of ranks among the first k, in percent, for each k; None without ranks."""
    found = np.array(ranks)
    return {f"{name}@{cut}": round(100 * float((found < cut).mean()), 2) if ranks else None for cut in cuts}


def percentile(values: Sequence[float], share: float) -> float | None:
    """A percentile, to a thousandth; None of nothing."""
    return round(float(np.quantile(values, share)), 3) if values else None


def rank(scores: "np.typing.NDArray[np.float64]", target: int) -> int:
    """How many candidates come before one; of equals, the first in the catalogue."""
    return int((scores > scores[target]).sum() + (scores[:target] == scores[target]).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledSession:
    """One session: what it was about, what it called in order, and the part of the sessions that it belongs to."""

    id: str
    context: str
    calls: tuple[str, ...]
    fold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSet:
    """Sessions of one side of a set, in the order of their hashes, with its catalog and their contexts."""

    dataset: Dataset
    sessions: tuple[CalledSession, ...]


def read_sessions(directory: Path, *, side: str = "dev", limit: int = DEFAULT_LIMIT) -> SessionSet:
    """Read `tools.jsonl` and the side's `sessions.jsonl`; sessions of a single call have nothing to predict."""
    tools = read_tools(directory)
    found = [_session(row) for row in rows(directory / side / "sessions.jsonl")]
    sessions = sorted((session for session in found if len(session.calls) > 1), key=lambda one: digest(one.id))[:limit]
    queries = tuple(Query(id=session.id, text=session.context) for session in sessions if session.context)
    dataset = Dataset(name=directory.name, side=side, tools=tuple(tools), queries=queries)
    return SessionSet(dataset=dataset, sessions=tuple(sessions))


def evaluate_sequences(
    found: SessionSet,
    prepared: EmbeddedDataset,
    make_predictor: Callable[[], PredictorPort],
    *,
    protocol: Protocol = "kfold",
    cuts: Sequence[int] = CUTS,
) -> dict[str, Any]:
    """Return the figures of a predictor.

    Each prediction is made before its call is learned, and what contexts taught comes from earlier sessions only.
    """
    tally = RankTally()
    if protocol == "online":
        replay = _SequenceReplay(prepared, make_predictor())
        for session in found.sessions:
            replay.predict(session, tally)
            replay.learn(session)
    else:
        for fold in range(FOLDS):
            replay = _SequenceReplay(prepared, make_predictor())
            for session in found.sessions:
                if session.fold != fold:
                    replay.learn(session)
            for session in found.sessions:
                if session.fold == fold:
                    replay.predict(session, tally)
    return {"n": len(found.sessions), **tally.figures(cuts)}


class _SequenceReplay:
    """One predictor on its way through sessions, with what their contexts taught."""

    def __init__(self, prepared: EmbeddedDataset, predictor: PredictorPort) -> None:
        self._predictor = predictor
        self._pairs = LearnedPairs()
        self._retriever = prepared.retriever(self._pairs)
        self._tools = {tool.name: tool for tool in prepared.dataset.tools}
        self._names = tuple(self._tools)
        self._columns = {name: column for column, name in enumerate(self._names)}
        self._servers: Mapping[str, str] = {name: tool.server for name, tool in self._tools.items()}
        queries = prepared.dataset.queries
        self._contexts = {query.id: context for query, context in zip(queries, prepared.contexts, strict=True)}
        self._learned = 0

    def predict(self, session: CalledSession, tally: RankTally) -> None:
        """Predict every call after the first."""
        context, relevance = self._relevance(session)
        for done in range(1, len(session.calls)):
            prediction_input = self._prediction_input(session, done, context, relevance)
            started = time.perf_counter()
            prediction = self._predictor.predict(prediction_input)
            tally.taken_ms.append((time.perf_counter() - started) * 1e3)
            target = self._columns[session.calls[done]]
            tally.ranks.append(rank(prediction.scores, target))
            tally.fresh.append(session.calls[done] not in session.calls[:done])

    def learn(self, session: CalledSession) -> None:
        """Learn every call, and then what the session's context was good for."""
        context, relevance = self._relevance(session)
        for done, tool in enumerate(session.calls):
            self._predictor.learn(self._prediction_input(session, done, context, relevance), tool)
        self._learned += 1
        if context is None:
            return
        for tool in dict.fromkeys(session.calls):
            fingerprint = self._tools[tool].fingerprint
            self._pairs.learn(context, tool, 1.0, scope="", at=float(self._learned), description_hash=fingerprint)

    def _relevance(self, session: CalledSession) -> tuple[Context | None, Relevance | None]:
        context = self._contexts.get(session.id)
        return context, self._retriever.relevance(context, self._names) if context is not None else None

    def _prediction_input(
        self, session: CalledSession, done: int, context: Context | None, relevance: Relevance | None
    ) -> PredictionInput:
        return PredictionInput(
            candidates=self._names,
            calls=session.calls[:done],
            servers=self._servers,
            context=context,
            relevance=relevance,
        )


def _session(row: Row) -> CalledSession:
    context = row.get("context") or ""
    group = (str(row.get("group") or "") or context or row["id"]).lower()
    return CalledSession(id=row["id"], context=context, calls=tuple(row["calls"]), fold=digest("fold" + group) % FOLDS)
