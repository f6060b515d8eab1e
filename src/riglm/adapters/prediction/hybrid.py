"""The default strategy: a small model that is learned online, with the other strategies' statistics as features."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from riglm.adapters.prediction.counts import IndexedInput, guess
from riglm.adapters.prediction.online_logit import Matrix, OnlineLogit, log_softmax
from riglm.adapters.prediction.signals import UsageSignals
from riglm.adapters.prediction.usage_statistics import FURTHER_CALLS
from riglm.domain.errors import ConfigurationError
from riglm.domain.prediction import Prediction, PredictionInput, Scores
from riglm.ports.predictor import PredictorPort

TOP: Final = 10
"""`confidence` is the probability that the next tool is among this number of first tools."""

STAGES: Final = ("with_context", "without_context")
"""Situations with separate weights of new tools."""

NEW: Final[Mapping[str, tuple[str, tuple[float, ...]]]] = {
    "share": ("frequency", (0.12, 0.16)),
    "moment": ("frequency", (0.1, 0.1)),
    "mix": ("cooccurrence", (0.18, 0.47)),
    "follows": ("sequence", (0.33, 0.26)),
    "within": ("server", (-0.15, -0.17)),
    "begins": ("server", (0.36, 0.43)),
    "last_server": ("server", (0.27, 0.3)),
    "near_server": ("server", (0.09, 0.26)),
    "server_size": ("server", (-0.06, 0.14)),
    "server_stage": ("server", (0.16, 0.21)),
    "server_part": ("server", (-0.02, 0.08)),
    "neighbor": ("server", (0.26, 0.32)),
    "words": ("words", (0.25, 0.45)),
    "rank": ("context", (0.43, 0.0)),
    "described": ("context", (0.59, 0.0)),
    "described_near": ("context", (0.06, 0.0)),
    "learned": ("learned", (0.24, 0.0)),
}
"""Features of tools new to the session: family, and default weight by `STAGES`.

Fitted by `python -m benchmarks.prediction fit`, except `moment`: no public set has times.
"""

NEVER_NEGATIVE: Final = frozenset({"share", "moment", "follows", "begins", "mix", "described", "rank", "learned"})
"""Features of new tools whose weight is at least 0: what is used or fits more must not be less likely for that."""

USED: Final[Mapping[str, tuple[str, float]]] = {
    "follows": ("sequence", 0.38),
    "age": ("recency", 0.77),
    "again": ("recency", 0.3),
    "again_two": ("recency", -0.01),
    "uses": ("recency", -0.3),
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

FAMILIES: Final[tuple[str, ...]] = tuple(
    dict.fromkeys([family for family, _ in NEW.values()] + [family for family, _ in USED.values()])
)
"""The families of features, by which contributions are reported; `repeat_or_new` is added to them."""

_NEED: Final = dict.fromkeys(FAMILIES, 1.0) | {"server": 0.5, "repeat_or_new": 0.25, "usage": 0.3}
"""How much each family says about the rest of the session, relative to what it says about the next call."""

_PRECISION: Final = 5.0
_FORGETTING: Final = 1e-3
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

    def __init__(self, *, fresh_bonus: float = 1.6, without: Sequence[str] = ()) -> None:
        unknown = sorted(set(without) - set(FAMILIES))
        if unknown:
            raise ConfigurationError(
                f"predictor.options.without: no signals are called {', '.join(unknown)} — fix: {', '.join(FAMILIES)}"
            )
        self._fresh_bonus = fresh_bonus
        self._without = frozenset(without)
        self._signals = UsageSignals()
        defaults = {
            **dict(zip(STAGES, zip(*(weights for _, weights in NEW.values()), strict=True), strict=True)),
            "used": [weight for _, weight in USED.values()],
            "turn": list(TURN.values()),
        }
        bounds = tuple(0.0 if name in NEVER_NEGATIVE else -np.inf for name in NEW)
        least = dict.fromkeys(STAGES, bounds)
        self._logits = {
            name: OnlineLogit(weights, precision=_PRECISION, forgetting=_FORGETTING, least=least.get(name, -np.inf))
            for name, weights in defaults.items()
        }
        self._latest: _Features | None = None

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        features = self._features(prediction_input)
        if prediction_input.calls:
            self._learn_weights(features, tool, weight)
        self._latest = None
        self._signals.learn(features.indexed, tool, weight)

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        if not prediction_input.candidates:
            return Prediction(scores=np.zeros(0), log_odds={})
        if not prediction_input.calls:
            return self._first(prediction_input, explain=explain)
        features = self._features(prediction_input)
        likely, parts = self._log_probabilities(features), self._parts(features)
        parts["repeat_or_new"] = likely - np.sum(list(parts.values()), axis=0)
        lowered = self._fresh_bonus * _less_likely(likely, features.indexed.used)
        return Prediction(
            scores=likely - lowered,
            contributions=parts | {"repeat_or_new": parts["repeat_or_new"] - lowered} if explain else {},
            confidence=min(float(np.exp(np.sort(likely)[-TOP:]).sum()), 1.0),
            log_odds={name: _NEED[name] * part for name, part in parts.items()}
            | {"usage": _NEED["usage"] * self._signals.usage(features.indexed) + FURTHER_CALLS},
        )

    def _first(self, prediction_input: PredictionInput, *, explain: bool) -> Prediction:
        """Return what a session needs that has called nothing: what sessions use, and what fits the context."""
        indexed = IndexedInput(prediction_input)
        parts = {
            family: part for family, part in self._signals.of_first(indexed).items() if family not in self._without
        }
        return guess(parts or {"frequency": np.zeros(indexed.size)}, self._signals.confidence, explain=explain)

    def _features(self, prediction_input: PredictionInput) -> "_Features":
        """Return the features of an input; the latest are kept, because a call is predicted and then learned."""
        if self._latest is None or self._latest.indexed.prediction_input is not prediction_input:
            self._latest = _Features(IndexedInput(prediction_input), self._signals, self._without)
        return self._latest

    def _learn_weights(self, features: "_Features", tool: str, weight: float) -> None:
        indexed = features.indexed
        target = indexed.column.get(tool)
        if target is None:
            return
        if indexed.used.any() and not indexed.used.all():
            self._learn_choice("turn", features.turn, int(indexed.used[target]), weight)
        nest = features.used if indexed.used[target] else features.new
        self._learn_choice(nest.logit, nest.table, int(nest.members[:target].sum()), weight)

    def _learn_choice(self, logit: str, table: Matrix, chosen: int, weight: float) -> None:
        self._logits[logit].learn(table, chosen, weight)

    def _log_probabilities(self, features: "_Features") -> Scores:
        used = features.indexed.used
        turn = (
            log_softmax(self._logits["turn"].weights @ features.turn) if used.any() and not used.all() else np.zeros(2)
        )
        found = np.zeros(used.size)
        for nest, likely in zip((features.new, features.used), turn, strict=True):
            found[nest.members] = log_softmax(self._logits[nest.logit].weights @ nest.table) + likely
        return found

    def _parts(self, features: "_Features") -> dict[str, Scores]:
        """Return the sum of weight times feature by family."""
        found = {family: np.zeros(features.indexed.size) for family in FAMILIES}
        for nest in (features.new, features.used):
            parts = self._logits[nest.logit].weights[:, None] * nest.table
            for family, part in zip(nest.families, parts, strict=True):
                found[family][nest.members] += part
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Nest:
    """The candidates of a nest, their features (a row per feature), the families of these, and the logit's name."""

    logit: str
    members: NDArray[np.bool_]
    table: Matrix
    families: tuple[str, ...]


class _Features:
    """The features of one prediction input, each nest computed when it is first needed."""

    def __init__(self, indexed: IndexedInput, signals: UsageSignals, without: frozenset[str]) -> None:
        self.indexed = indexed
        self._signals = signals
        self._without = without

    @cached_property
    def turn(self) -> Matrix:
        return self._signals.of_turn(self.indexed)

    @cached_property
    def new(self) -> _Nest:
        stage = STAGES[self.indexed.prediction_input.relevance is None]
        return self._nest(stage, ~self.indexed.used, NEW, self._signals.of_new)

    @cached_property
    def used(self) -> _Nest:
        return self._nest("used", self.indexed.used, USED, self._signals.of_used)

    def _nest(
        self,
        logit: str,
        members: NDArray[np.bool_],
        labels: Mapping[str, tuple[str, object]],
        compute: Callable[[IndexedInput], Mapping[str, Scores]],
    ) -> _Nest:
        table = np.zeros((len(labels), int(members.sum())))
        families = tuple(family for family, _ in labels.values())
        if table.size:
            amounts = compute(self.indexed)
            for row, name in enumerate(labels):
                if families[row] not in self._without and name in amounts:
                    table[row] = amounts[name][members]
        return _Nest(logit, members, table, families)


def _less_likely(likely: Scores, used: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return True for used candidates other than the two likeliest of them."""
    found = used.copy()
    columns = np.flatnonzero(used)
    found[columns[np.argsort(-likely[columns], kind="stable")[:_LIKELIEST]]] = False
    return found
