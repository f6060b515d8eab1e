"""What follows what: the strategy `sequence`, and a statistic of the hybrid."""

from collections.abc import Hashable, Mapping

import numpy as np

from riglm.adapters.prediction.counts import Counts
from riglm.adapters.prediction.features import Features
from riglm.adapters.prediction.frequency import Frequency
from riglm.domain.prediction import Prediction, Scores, Situation
from riglm.ports.predictor import PredictorPort

_LONGEST_RUN = 4


class Order:
    """Markov chains of order 2, 1 and 0 with back-off, kept apart for repeats and for tools new to their session."""

    def __init__(self) -> None:
        self._fresh = Counts()
        self._repeat = Counts()
        self._turns = Counts()

    def learn(self, features: Features, tool: str, weight: float) -> None:
        """Count a transition."""
        fresh = tool not in features.ages
        counts = self._fresh if fresh else self._repeat
        for past in _pasts(features, fresh=fresh):
            counts.add(past, tool, weight)
        for past in _rhythms(features):
            self._turns.add(past, "fresh" if fresh else "repeat", weight)

    def share(self, features: Features, *, fresh: bool) -> Scores:
        """How probable each candidate is, given that a fresh tool, or that a repeat comes next."""
        counts = self._fresh if fresh else self._repeat
        found = features.uniform
        for past in _pasts(features, fresh=fresh):
            found = counts.share(features, past, found)
        return found

    def fresh_odds(self, features: Features) -> float:
        """The log-odds that the next tool is one that the session has not used."""
        likely = 0.5
        for past in _rhythms(features):
            row = self._turns.row(past)
            likely = (row.get("fresh", 0.0) + 2 * likely) / (self._turns.total(past) + 2)
        likely = min(max(likely, 1e-3), 1 - 1e-3)
        return float(np.log(likely / (1 - likely)))

    def signals(self, features: Features) -> Mapping[str, Scores]:
        """`follows`, right for fresh tools and for repeats."""
        found = np.where(features.used, self.share(features, fresh=False), self.share(features, fresh=True))
        return {"follows": features.lift(found)}


class SequencePredictor(PredictorPort):
    """What followed the last two tools, the last one, or anything, repeats apart."""

    def __init__(self) -> None:
        self._order = Order()
        self._frequency = Frequency()

    def learn(self, situation: Situation, tool: str, weight: float = 1.0) -> None:
        """Count a transition."""
        features = Features(situation)
        self._order.learn(features, tool, weight)
        self._frequency.learn(features, tool, weight)

    def predict(self, situation: Situation, *, explain: bool = False) -> Prediction:
        """The logarithm of P(fresh) P(tool | fresh) or P(repeat) P(tool | repeat), against chance."""
        features = Features(situation)
        follows = self._order.signals(features)["follows"]
        odds = self._order.fresh_odds(features)
        fresh = -np.log1p(np.exp(np.where(features.used, odds, -odds)))
        parts = {"follows": follows, "fresh": fresh} if explain else {}
        return Prediction(scores=follows + fresh, contributions=parts, confidence=self._frequency.confidence())


def _pasts(features: Features, *, fresh: bool) -> tuple[Hashable, ...]:
    """Return the circumstances of a call, least specific first; what comes new follows the last two different tools."""
    recent = tuple(features.ages)[:2] if fresh else tuple(reversed(features.calls[-2:]))
    return tuple(recent[:order] for order in range(len(recent) + 1))


def _rhythms(features: Features) -> tuple[Hashable, ...]:
    """Return the circumstances that show whether a new tool is due, least specific first."""
    if not features.calls:
        return ("first",)
    last = features.calls[-1]
    run = next((age for age, tool in enumerate(reversed(features.calls)) if tool != last), len(features.calls))
    return "any", (last,), (last, min(run, _LONGEST_RUN))
