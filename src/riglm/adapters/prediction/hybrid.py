"""The default strategy: all signals, weighed by what each one got right."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from riglm.adapters.prediction import embedding, weighing
from riglm.adapters.prediction.features import Features, Wording, recency_signals
from riglm.adapters.prediction.novelty import EXPLANATIONS, FirstCallReranker, Novelty, Ranked, for_whole_context
from riglm.adapters.prediction.usage_statistics import CooccurrenceCounts, Frequency, MarkovChains, ServerTransitions
from riglm.adapters.prediction.weighing import Matrix, ProbabilityCalibrator, SignalWeighting, WeightedScores
from riglm.domain.errors import ConfigurationError
from riglm.domain.prediction import Prediction, PredictionInput, Scores
from riglm.ports.predictor import PredictorPort

TOP: Final = 10
"""`confidence` is the probability that the next tool is among this number of first tools."""

SIGNALS: Final[Mapping[str, tuple[str, float, float]]] = {
    "mixed": ("", 1.2, 0.0),
    "use": ("frequency", -0.2, -0.15),
    "who": ("frequency", 1.3, 0.3),
    "stage": ("frequency", 0.12, 0.1),
    "moment": ("frequency", 0.1, 0.1),
    "follows": ("sequence", 0.03, 0.45),
    "server_moves": ("server", 0.1, 0.1),
    "word_use": ("words", 0.0, -0.1),
    "word_follows": ("words", 0.2, 0.15),
    "age": ("recency", 0.0, 0.3),
    "again": ("recency", 0.0, 0.25),
    "again_two": ("recency", 0.0, 0.2),
    "described": ("context", 0.08, 0.0),
    "relevant": ("context", 0.17, 0.0),
    "learned": ("learned", 0.08, 0.0),
}
"""The family of each signal, and its weight at the start for tools fresh to the session and for used ones.

`mixed` is the logarithm of a mixture, whose parts belong to the families of `EXPLANATIONS`.
"""

_NEST: Final = (0.0, 0.8, 0.0, -0.1, 0.25, -0.2)
FAMILIES: Final = tuple(
    dict.fromkeys(
        [family for family, *_ in SIGNALS.values() if family] + [family for family, _ in EXPLANATIONS.values()]
    )
)
"""The families of signals, by which contributions are reported; `repeat_or_new` is added to them."""
_MIN_LIFT: Final = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """The signals of a situation, kept until something is learned: a call is predicted, then learned."""

    features: Features
    explanations: Matrix
    made: Matrix
    signals: Matrix
    hints: tuple[float, float, float]
    weighed: WeightedScores
    lifted: Ranked
    opened: Ranked


class HybridPredictor(PredictorPort):
    """All signals in one model that learns online what each is worth.

    `rate` is how fast the weights move, `pull` how strongly they are drawn back to where they started. `fresh_bonus`,
    in log-odds, lifts tools that the session has not used above their probability: a used tool is retained in the list
    anyway, so a place near the top helps a new one more. Likely used tools stay among the first 15 nevertheless.
    `without` names families of signals to leave out.

    Before a session's first call, candidates come in the order of the context's relevance, until the model's own
    order has proved better there. A `lasting` prediction uses what was of use in such contexts, to the degree that they
    known.

    Raises:
        ConfigurationError: `without` names an unknown family.
    """

    def __init__(
        self, *, rate: float = 0.01, pull: float = 0.01, fresh_bonus: float = 0.8, without: Sequence[str] = ()
    ) -> None:
        unknown = sorted(set(without) - set(FAMILIES))
        if unknown:
            raise ConfigurationError(
                f"predictor.options.without: no signals are called {', '.join(unknown)} — fix: {', '.join(FAMILIES)}"
            )
        self._fresh_bonus = fresh_bonus
        self._kept = np.array([[family not in without] for family, *_ in SIGNALS.values()], np.float64)
        self._frequency = Frequency()
        self._order = MarkovChains()
        self._cooccurrences = CooccurrenceCounts()
        self._home = ServerTransitions()
        self._wording = Wording()
        self._novelty = Novelty(
            frequency=self._frequency,
            order=self._order,
            cooccurrences=self._cooccurrences,
            home=self._home,
            without=without,
        )
        _, fresh, used = zip(*SIGNALS.values(), strict=True)
        self._weighing = SignalWeighting(fresh, used, _NEST, rate=rate, pull=pull)
        self._reliability = ProbabilityCalibrator()
        self._opening = FirstCallReranker() if "context" not in without else None
        self._lasts = "learned" not in without
        self._judged: _Judged | None = None

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        features = self._features(prediction_input)
        target = features.column.get(tool)
        if target is not None and features.size > 1:
            self._learn_weights(self._judge(prediction_input), target, weight)
        self._judged = None
        for statistic in (self._frequency, self._order, self._cooccurrences, self._home, self._wording):
            statistic.learn(features, tool, weight)

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        if not prediction_input.candidates:
            return Prediction(scores=np.zeros(0), log_probabilities=np.zeros(0))
        judged = self._judge(prediction_input)
        weighed, lifted, opened = judged.weighed, judged.lifted, judged.opened
        lasting = self._lasting(judged.features, opened)
        steps = (weighed.parts.sum(0), lifted.scores, opened.scores, lasting.scores)
        return Prediction(
            scores=lasting.scores.copy(),
            contributions=_contributions(weighed, judged.made, steps) if explain else {},
            confidence=self._reliability.of(_mass(weighed, opened.scores)),
            log_probabilities=lasting.log_probabilities.copy(),
        )

    def _judge(self, prediction_input: PredictionInput) -> _Judged:
        features = self._features(prediction_input)
        if self._judged is None or self._judged.features is not features:
            explanations = self._novelty.explanations(features)
            mixed, made = self._novelty.mix(explanations)
            signals, hints = self._signals(features, mixed), self._hints(features)
            weighed = self._weighing.weigh(signals, features.used, hints)
            lifted = self._lifted(features, weighed)
            opened = self._opened(features, lifted)
            self._judged = _Judged(features, explanations, made, signals, hints, weighed, lifted, opened)
        return self._judged

    def _features(self, prediction_input: PredictionInput) -> Features:
        if self._judged is not None and self._judged.features.prediction_input is prediction_input:
            return self._judged.features
        return Features(prediction_input)

    def _learn_weights(self, judged: _Judged, target: int, weight: float) -> None:
        features, scores = judged.features, judged.opened.scores
        self._reliability.learn(_mass(judged.weighed, scores), int((scores > scores[target]).sum()) < TOP, weight)
        if self._opening is not None:
            self._opening.learn(features, judged.weighed.scores, target, weight)
        self._weighing.learn(judged.signals, features.used, judged.hints, target, weight)
        if not features.used[target]:
            self._novelty.learn(judged.explanations, target, weight)

    def _signals(self, features: Features, mixed: Scores) -> Matrix:
        found: dict[str, Scores] = {
            "mixed": np.where(features.used, 0.0, np.log(mixed * features.size + _MIN_LIFT)),
            **self._frequency.signals(features),
            **self._order.signals(features),
            **self._home.signals(features),
            **self._wording.signals(features),
            **recency_signals(features),
            **embedding.signals(features),
        }
        return np.stack([found[name] for name in SIGNALS]) * self._kept

    def _hints(self, features: Features) -> tuple[float, float, float]:
        return (
            self._order.fresh_odds(features),
            float(np.log1p(len(features.ages))),
            float(np.log1p(len(features.calls))),
        )

    def _lifted(self, features: Features, weighed: WeightedScores) -> Ranked:
        likely = weighed.scores
        return Ranked(weighing.kept(likely + self._fresh_bonus * ~features.used, likely, features.used), likely)

    def _opened(self, features: Features, ranked: Ranked) -> Ranked:
        return ranked.given_out(self._opening.order(features) if self._opening is not None else None)

    def _lasting(self, features: Features, ranked: Ranked) -> Ranked:
        relevance = features.prediction_input.relevance
        if relevance is None or not (features.prediction_input.lasting and self._lasts):
            return ranked
        return ranked.given_out(for_whole_context(ranked.scores, relevance))


def _contributions(weighed: WeightedScores, made: Matrix, steps: Sequence[Scores]) -> dict[str, Scores]:
    """By family: the parts of the signals, those of the mixture by who made it, and what each step after moved."""
    found = {family: np.zeros(weighed.nest.size) for family in (*FAMILIES, "repeat_or_new")}
    for (family, *_), part in zip(SIGNALS.values(), weighed.parts, strict=True):
        if family:
            found[family] += part
    mixed = weighed.parts[list(SIGNALS).index("mixed")]
    found["repeat_or_new"] += mixed * (1 - made.sum(0))
    for (family, _), share in zip(EXPLANATIONS.values(), made, strict=True):
        found[family] += mixed * share
    for family, before, after in zip(("repeat_or_new", "context", "learned"), steps, steps[1:], strict=False):
        found[family] += after - before
    return found


def _mass(weighed: WeightedScores, scores: Scores) -> float:
    """The probability of the candidates that come first."""
    first = np.argsort(-scores, kind="stable")[:TOP]
    return float(np.exp(weighed.scores[first]).sum())
