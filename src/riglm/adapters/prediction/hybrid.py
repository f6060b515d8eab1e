"""The default strategy: a small model that is learned online, with the other strategies' statistics as features."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from riglm.adapters.prediction.counts import IndexedInput, finite, guess, log_odds
from riglm.adapters.prediction.usage_statistics import FURTHER_CALLS, UsageStatistics, nearness
from riglm.domain.errors import ConfigurationError
from riglm.domain.prediction import Prediction, PredictionInput, Scores
from riglm.domain.retrieval.scoring import standardized
from riglm.ports.predictor import PredictorPort

_MIX: Final = (0.4, 0.2, 0.3, 0.1)
_MAX_BELOW, _MAX_ABOVE = 4.0, 8.0
_CALL_FADING: Final = 0.95


def evidence_at_start(usage: UsageStatistics, indexed: IndexedInput) -> Mapping[str, Scores]:
    """Return the evidence for each candidate in a session that has called nothing, in log-odds by family."""
    share, context = log_odds(usage.sessions.share(indexed)), _of_context(indexed, np.zeros(indexed.size))
    if not context:
        return {"frequency": share}
    return {
        "frequency": 0.5 * share,
        "context": 0.8 * context["described"] + 0.4 * context["rank"] - 1.0,
        "learned": 1.3 * context["learned"],
    }


def turn_features(usage: UsageStatistics, indexed: IndexedInput) -> Mapping[str, Scores]:
    """Return the features of calling a new tool and, all zero, a used one."""
    tools, calls = len(indexed.ages), len(indexed.calls)
    features = {
        "constant": 1.0,
        "odds": usage.chains.fresh_odds(indexed),
        "tools": np.log1p(tools),
        "calls": np.log1p(calls),
        "since": np.log1p(calls - indexed.calls.index(tuple(dict.fromkeys(indexed.calls))[-1])),
        "repeated": usage.chains.share(indexed, fresh=False)[indexed.used].max(),
    }
    return {name: np.array([feature, 0.0]) for name, feature in features.items()}


def used_features(usage: UsageStatistics, indexed: IndexedInput) -> Mapping[str, Scores]:
    """Return the features of tools that the session has used."""
    return {
        "follows": log_odds(usage.chains.share(indexed, fresh=False)),
        "age": -np.log1p(indexed.spread(indexed.ages)),
        "again": np.log1p(2 * indexed.spread(_successors(indexed.calls))),
    }


def new_features(usage: UsageStatistics, indexed: IndexedInput) -> Mapping[str, Scores]:
    """Return the features of tools that the session has not used.

    Shares are logarithms of odds; those that depend on the session are relative to `share`, so that 0 is no news.
    """
    share, (within, begins) = usage.sessions.share(indexed), usage.sessions.within(indexed)
    base, near = log_odds(share), nearness(indexed)
    in_use, follows = near > 0, usage.chains.share(indexed, fresh=True)
    company = usage.cooccurrence.share(indexed, share, usage.sessions.sessions)
    joined = np.where(in_use, near, usage.sessions.joined(indexed))
    mixed = np.stack([company, follows, joined * within, share])
    servers_used = Counter(map(indexed.server_of, indexed.ages))
    return {
        "share": base,
        "moment": usage.sessions.moment(indexed),
        "mix": log_odds(np.dot(_MIX, mixed)) - base,
        "follows": log_odds(follows) - base,
        "within": in_use * (log_odds(within) - base),
        "begins": np.log(begins) * ~in_use,
        "last_server": 1.0 * (near == 1.0),
        "near_server": near,
        "server_size": in_use * np.log(indexed.server_sizes),
        "server_part": in_use * indexed.by_server(servers_used) / indexed.server_sizes,
        "words": usage.words.follows(indexed),
        **_of_context(indexed, near),
    }


def _of_context(indexed: IndexedInput, near: Scores) -> Mapping[str, Scores]:
    relevance = indexed.prediction_input.relevance
    if relevance is None:
        return {}
    described, place = _standard(relevance.described), np.empty(indexed.size)
    place[np.argsort(-finite(relevance.combined), kind="stable")] = np.arange(indexed.size)
    return {
        "rank": -np.log1p(place),
        "described": described,
        "described_near": described * near,
        "learned": _standard(relevance.learned) * min(max(relevance.confidence, 0.0), 1.0),
    }


def _successors(calls: tuple[str, ...]) -> Mapping[str, float]:
    """Return how often each tool followed the last one before, decayed by the calls since."""
    found: defaultdict[str, float] = defaultdict(float)
    for place, (before, tool) in enumerate(pairwise(calls), 1):
        if before == calls[-1]:
            found[tool] += _CALL_FADING ** (len(calls) - place)
    return found


def _standard(values: Scores) -> Scores:
    """Return the values in standard deviations from their mean, between -4 and 8; zeros if all are alike."""
    return np.clip(standardized(finite(values)), -_MAX_BELOW, _MAX_ABOVE)


Matrix = NDArray[np.float64]


class OnlineLogit:
    """A conditional logit: p_i = exp(w·x_i) / sum_j exp(w·x_j) over alternatives i with features x_i.

    Learns by the sequential Laplace approximation (Spiegelhalter and Lauritzen 1990), whose steps are those of the
    online Newton method (Hazan, Agarwal and Kale 2007). The weights have a normal distribution with mean w and
    precision A; it starts at the default weights w0 with A = `precision` · I. A choice t moves both:

        m = sum_i p_i x_i,   A += sum_i p_i x_i x_i' - m m',   w -= A^-1 (m - x_t)

    Before each step A and w are drawn towards their start by the share `forgetting`, so that A is bounded and about
    the last 1 / `forgetting` choices count. A weight below its `least` is set to it after each step.
    """

    def __init__(
        self,
        weights: Sequence[float],
        *,
        precision: float = 5.0,
        forgetting: float = 1e-3,
        least: Scores | float = -np.inf,
    ) -> None:
        self._start = np.array(weights, np.float64)
        self.weights = self._start.copy()
        self._prior = precision * np.eye(len(self._start))
        self._precision = self._prior.copy()
        self._forgetting = forgetting
        self._least = least

    def learn(self, features: Matrix, chosen: int, weight: float) -> None:
        """Learn that the alternative at `chosen` was taken; `features` has a row per feature."""
        p = np.exp(log_softmax(self.weights @ features))
        mean = features @ p
        rate = self._forgetting
        pull = rate * self._prior @ (self.weights - self._start)
        self._precision += rate * (self._prior - self._precision)
        self._precision += weight * ((features * p) @ features.T - np.outer(mean, mean))
        step = np.linalg.solve(self._precision, weight * (mean - features[:, chosen]) + pull)
        self.weights = np.maximum(self.weights - step, self._least)


def log_softmax(values: Scores) -> Scores:
    """Return values - log(sum(exp(values)))."""
    if not values.size:
        return values
    shifted = values - values.max()
    found: Scores = shifted - np.log(np.exp(shifted).sum())
    return found


TOP: Final = 10
"""`confidence` is the probability that the next tool is among this number of first tools."""

STAGES: Final = ("with_context", "without_context")
"""Situations with separate weights of new tools."""

NEW: Final[Mapping[str, tuple[str, tuple[float, ...]]]] = {
    "share": ("frequency", (0.12, 0.25)),
    "moment": ("moment", (0.1, 0.1)),
    "mix": ("cooccurrence", (0.32, 0.55)),
    "follows": ("sequence", (0.32, 0.28)),
    "within": ("server", (0.03, 0.05)),
    "begins": ("server", (0.4, 0.48)),
    "last_server": ("server", (0.23, 0.26)),
    "near_server": ("server", (0.09, 0.26)),
    "server_size": ("server", (-0.08, 0.11)),
    "server_part": ("server", (0.0, 0.11)),
    "words": ("words", (0.18, 0.37)),
    "rank": ("context", (0.46, 0.0)),
    "described": ("context", (0.58, 0.0)),
    "described_near": ("context", (0.04, 0.0)),
    "learned": ("learned", (0.34, 0.0)),
}
"""Features of tools new to the session: family, and default weight by `STAGES`.

Fitted by `python -m benchmarks.prediction fit`, except `moment`: no public set has times.
"""

NEVER_NEGATIVE: Final = frozenset({"share", "moment", "follows", "begins", "mix", "described", "rank", "learned"})
"""Features of new tools whose weight is at least 0: what is used or fits more must not be less likely for that."""

USED: Final[Mapping[str, tuple[str, float]]] = {
    "follows": ("sequence", 0.28),
    "age": ("recency", 0.75),
    "again": ("recency", 0.27),
}
"""Features of tools that the session has used: family and default weight, fitted likewise."""

TURN: Final[Mapping[str, float]] = {
    "constant": 0.56,
    "odds": 0.74,
    "tools": 0.09,
    "calls": -0.07,
    "since": 0.07,
    "repeated": -0.32,
}
"""Features of the decision for a new tool, and their default weights, fitted likewise."""

FAMILIES: Final[tuple[str, ...]] = tuple(dict.fromkeys(family for family, _ in (*NEW.values(), *USED.values())))
"""The families of features, by which contributions are reported; `repeat_or_new` is added to them."""

_NEED: Final = dict.fromkeys(FAMILIES, 1.0) | {"server": 0.5, "repeat_or_new": 0.25, "usage": 0.3}
"""How much each family says about the rest of the session, relative to what it says about the next call."""

_LIKELIEST: Final = 2


class HybridPredictor(PredictorPort):
    """A nested logit: is the next tool new to the session or used, and which one.

        log p(tool) = log p(new) + w·x(tool) - log(sum exp(w·x))     over the candidates that the session has not used
        log p(tool) = log p(used) + v·y(tool) - log(sum exp(v·y))    over those that it has

    w, v and the weights of p(new) are learned online, w separately by `STAGES`. Scores are log p, lowered by
    `fresh_bonus` for used tools but the two likeliest: a used tool stays in the list anyway, so a place near the top
    helps a new one more. `without` names families of features to leave out.

    Raises:
        ConfigurationError: `without` names an unknown family.
    """

    def __init__(self, *, fresh_bonus: float = 1.8, without: Sequence[str] = ()) -> None:
        unknown = sorted(set(without) - set(FAMILIES))
        if unknown:
            raise ConfigurationError(
                f"predictor.options.without: no signals are called {', '.join(unknown)} — fix: {', '.join(FAMILIES)}"
            )
        self._fresh_bonus = fresh_bonus
        self._without = frozenset(without)
        self._usage = UsageStatistics()
        least = np.array([0.0 if name in NEVER_NEGATIVE else -np.inf for name in NEW])
        self._logits = {
            **{
                stage: OnlineLogit([weights[place] for _, weights in NEW.values()], least=least)
                for place, stage in enumerate(STAGES)
            },
            "used": OnlineLogit([weight for _, weight in USED.values()]),
            "turn": OnlineLogit(list(TURN.values())),
        }

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        indexed = IndexedInput(prediction_input)
        self._learn_weights(indexed, tool, weight)
        self._usage.learn(indexed, tool, weight)

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        indexed = IndexedInput(prediction_input)
        if not indexed.size:
            return Prediction(scores=np.zeros(0), log_odds={})
        if not indexed.calls:
            return self._first(indexed, explain=explain)
        likely, parts = np.zeros(indexed.size), {family: np.zeros(indexed.size) for family in FAMILIES}
        turn = self._turn(indexed)
        of_turn = np.zeros(2) if turn is None else log_softmax(self._logits["turn"].weights @ turn)
        for used, turn_likely in zip((False, True), of_turn, strict=True):
            nest = self._nest(indexed, used=used)
            weighted = self._logits[nest.logit].weights[:, None] * nest.table
            likely[nest.members] = log_softmax(weighted.sum(axis=0)) + turn_likely
            for family, part in zip(nest.families, weighted, strict=True):
                parts[family][nest.members] += part
        parts["repeat_or_new"] = likely - np.sum(list(parts.values()), axis=0)
        usage = log_odds(self._usage.sessions.share(indexed))
        lowered = self._fresh_bonus * _less_likely(likely, indexed.used)
        return Prediction(
            scores=likely - lowered,
            contributions=parts | {"repeat_or_new": parts["repeat_or_new"] - lowered} if explain else {},
            confidence=min(float(np.exp(np.sort(likely)[-TOP:]).sum()), 1.0),
            log_odds={name: _NEED[name] * part for name, part in parts.items()}
            | {"usage": _NEED["usage"] * usage + FURTHER_CALLS},
        )

    def _first(self, indexed: IndexedInput, *, explain: bool) -> Prediction:
        """Return what a session needs that has called nothing: what sessions use, and what fits the context."""
        evidence = evidence_at_start(self._usage, indexed)
        parts = {family: part for family, part in evidence.items() if family not in self._without}
        parts = parts or {"frequency": np.zeros(indexed.size)}
        return guess(parts, self._usage.sessions.confidence, explain=explain)

    def _learn_weights(self, indexed: IndexedInput, tool: str, weight: float) -> None:
        target = indexed.column.get(tool)
        if target is None or not indexed.calls:
            return
        used, turn = bool(indexed.used[target]), self._turn(indexed)
        if turn is not None:
            self._logits["turn"].learn(turn, int(used), weight)
        nest = self._nest(indexed, used=used)
        self._logits[nest.logit].learn(nest.table, int(nest.members[:target].sum()), weight)

    def _turn(self, indexed: IndexedInput) -> Matrix | None:
        """Return the features of a new tool and of a used one; None if all candidates are new, or all are used."""
        if indexed.used.all() or not indexed.used.any():
            return None
        features = turn_features(self._usage, indexed)
        return np.stack([features[name] for name in TURN])

    def _nest(self, indexed: IndexedInput, *, used: bool) -> "_Nest":
        """Return the candidates that the session has used, or those that it has not, with their features."""
        members = indexed.used if used else ~indexed.used
        logit = "used" if used else STAGES[indexed.prediction_input.relevance is None]
        compute, labels = (used_features, USED) if used else (new_features, NEW)
        features = compute(self._usage, indexed) if members.any() else {}
        families = tuple(family for family, _ in labels.values())
        table = np.zeros((len(labels), int(members.sum())))
        for row, (name, family) in enumerate(zip(labels, families, strict=True)):
            if name in features and family not in self._without:
                table[row] = features[name][members]
        return _Nest(logit, members, table, families)


class _Nest(NamedTuple):
    """The candidates of a nest, their features (a row per feature), the families of these, and the logit's name."""

    logit: str
    members: NDArray[np.bool_]
    table: Matrix
    families: tuple[str, ...]


def _less_likely(likely: Scores, used: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return True for used candidates other than the two likeliest of them."""
    found = used.copy()
    columns = np.flatnonzero(used)
    found[columns[np.argsort(-likely[columns], kind="stable")[:_LIKELIEST]]] = False
    return found
